"""The compatibility scanner (Pi §2A.4, §8): by syntax tree, on the sources and on the bundle."""

from forestay.extensions.compiler.scan.rules import Rule
from forestay.extensions.compiler.scan.uses import Finding, scan_text

__all__ = ["Finding", "Rule", "scan_text"]
