"""TypeScript and JavaScript extensions to one sandboxed module: bundle, rewrite, scan, infer, map (Pi §2, §2A, §2B)."""

from forestay.extensions.compiler.artifact import Artifact, ArtifactMeta, read_artifact
from forestay.extensions.compiler.build import build

__all__ = ["Artifact", "ArtifactMeta", "build", "read_artifact"]
