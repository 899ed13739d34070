"""Twelve extensions in use, as their authors wrote them: at the terminal and in the console, with a scripted model."""
