"""TypeScript and JavaScript extensions to one sandboxed module: bundle, rewrite, scan, infer, map (Pi §2, §2A, §2B)."""

from holdfast.extensions.compiler.artifact import Artifact, ArtifactMeta, read_artifact
from holdfast.extensions.compiler.build import build

__all__ = ["Artifact", "ArtifactMeta", "build", "read_artifact"]
