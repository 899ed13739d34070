"""esbuild as a service: one native process, spoken to over its pipes, with our resolver asked for every import.

The process starts with the first build (no Node), lives as long as this one, and ends when its input closes.
One build runs at a time; callbacks are answered by the thread that asked for the build.
"""

from __future__ import annotations

import struct
import subprocess
import threading
from collections.abc import Callable
from typing import IO, Any

import msgspec

from forestay import assets
from forestay.extensions.compiler import esbuild_packets
from forestay.kernel import Problem

VERSION = "0.28.2"
Callback = Callable[[dict[str, Any]], dict[str, Any] | None]


class Plugin(msgspec.Struct, frozen=True):
    """What answers esbuild's questions: (filter, namespace, callback) for resolving and for loading."""

    resolve: tuple[tuple[str, str, Callback], ...]
    load: tuple[tuple[str, str, Callback], ...]


class Service:
    """The running esbuild."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._next = 0

    def build(self, entry: str, flags: list[str], folder: str, plugin: Plugin) -> dict[str, Any]:
        """Bundle `entry`; the answer holds errors, warnings, outputFiles and metafile."""
        with self._lock:
            stdin, stdout = self._pipes()
            key = self._next
            self._next += 1
            request = {
                "command": "build",
                "key": key,
                "entries": [["", entry]],
                "flags": flags,
                "write": False,
                "stdinContents": None,
                "stdinResolveDir": None,
                "absWorkingDir": folder,
                "nodePaths": [],
                "context": False,
                "plugins": [_describe(plugin)],
            }
            try:
                return _converse(stdin, stdout, key, request, plugin)
            except (OSError, struct.error, EOFError) as error:
                self._stop()
                raise Problem("compile_failed", "The bundler ended before it answered.", reason=str(error)) from error
            except BaseException:
                # Half a conversation is left in the pipes: the next build needs a fresh process.
                self._stop()
                raise

    def close(self) -> None:
        with self._lock:
            self._stop()

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        process = self._process
        if process is None or process.poll() is not None:
            process = subprocess.Popen(
                [str(assets.esbuild()), f"--service={VERSION}", "--ping"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={"GOMAXPROCS": "2"},
            )
            assert process.stdin and process.stdout
            _read_packet(process.stdout)  # its version; the lock pins it
            self._process = process
        assert process.stdin and process.stdout
        return process.stdin, process.stdout

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()
        process.kill()
        process.wait()


def _converse(stdin: IO[bytes], stdout: IO[bytes], key: int, request: dict[str, Any], plugin: Plugin) -> dict[str, Any]:
    callbacks = [callback for _, _, callback in (*plugin.resolve, *plugin.load)]
    _send(stdin, esbuild_packets.encode(key, True, request))
    while True:
        packet_id, is_request, value = esbuild_packets.decode(_read_packet(stdout))
        if not is_request:
            if packet_id == key:
                answer: dict[str, Any] = value
                return answer
            continue
        reply: dict[str, Any] = {}
        if value["command"] in ("on-resolve", "on-load"):
            for callback_id in value["ids"]:
                found = callbacks[callback_id](value)
                if found is not None:
                    reply = {"id": callback_id, **found}
                    break
        elif value["command"] == "on-start":
            reply = {"errors": [], "warnings": []}
        _send(stdin, esbuild_packets.encode(packet_id, False, reply))


def _describe(plugin: Plugin) -> dict[str, Any]:
    resolve = [{"id": i, "filter": f, "namespace": ns} for i, (f, ns, _) in enumerate(plugin.resolve)]
    first = len(resolve)
    load = [{"id": first + i, "filter": f, "namespace": ns} for i, (f, ns, _) in enumerate(plugin.load)]
    return {"name": "forestay", "onStart": False, "onEnd": False, "onResolve": resolve, "onLoad": load}


def _send(stdin: IO[bytes], data: bytes) -> None:
    stdin.write(data)
    stdin.flush()


def _read_packet(stdout: IO[bytes]) -> bytes:
    (size,) = struct.unpack("<I", _read_exactly(stdout, 4))
    return _read_exactly(stdout, size)


def _read_exactly(stdout: IO[bytes], size: int) -> bytes:
    data = stdout.read(size)
    if len(data) != size:
        raise EOFError("the pipe closed")
    return data


_service: Service | None = None
_service_lock = threading.Lock()


def service() -> Service:
    """The service of this process."""
    global _service
    with _service_lock:
        if _service is None:
            import atexit

            _service = Service()
            atexit.register(_service.close)
        return _service
