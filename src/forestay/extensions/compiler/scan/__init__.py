"""The compatibility scanner (Pi §2A.4, §8): by syntax tree, on the sources and on the bundle."""

from forestay.extensions.compiler.scan.program import Section
from forestay.extensions.compiler.scan.reading import Reading, read, read_bundle
from forestay.extensions.compiler.scan.rules import Rule
from forestay.extensions.compiler.scan.uses import Finding, scan_text

__all__ = ["Finding", "Reading", "Rule", "Section", "read", "read_bundle", "scan_text"]
