"""The image from which every VM starts: the engine after evaluating the prelude, made once and cached on disk."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from forestay import assets
from forestay.extensions.engine.limits import GuestError, Limits
from forestay.extensions.engine.native import native
from forestay.extensions.engine.snapshot import Nobody, Snapshot, take
from forestay.extensions.engine.vm import Vm
from forestay.extensions.guest.build import Prelude, prelude
from forestay.kernel import Problem, write_file

ENTRY = ("deliver", "collect", "describe", "begin")
HOST_FUNCTIONS = ("__host_sync__", "__host_random__", "__host_memory__")


def base_image() -> Snapshot:
    """Return the image of the current engine and prelude."""
    return _image(prelude())


@lru_cache(maxsize=1)
def image_digest() -> str:
    """Return a hash of engine and prelude: with the artifact, they decide how a program runs (Pi §1A.4.6)."""
    return hashlib.sha256(f"{native().digest}{prelude().digest}".encode()).hexdigest()


@lru_cache(maxsize=2)
def _image(guest: Prelude) -> Snapshot:
    key = hashlib.sha256(f"{native().digest}{guest.digest}".encode()).hexdigest()
    path = assets.folder() / "native" / f"{key[:24]}.vm"
    if path.exists():
        try:
            return Snapshot.from_bytes(path.read_bytes())
        except Problem:
            path.unlink(missing_ok=True)
    image = _boot(guest)
    write_file(path, image.to_bytes())
    return image


def _boot(guest: Prelude) -> Snapshot:
    """Evaluate the prelude with a fixed clock and zero randomness, so that the image is the same everywhere."""
    vm = Vm(Nobody(), Limits(slice_ms=60_000))
    try:
        vm.initialize()
        with vm.running():
            for name in HOST_FUNCTIONS:
                vm.define_host_function(name)
            vm.free(vm.evaluate(guest.text, "forestay:prelude"))
            vm.run_jobs()
            target = vm.global_object()
            entry = vm.property(target, "__forestay_entry__")
            roots = {name: vm.property(entry, name) for name in ENTRY}
            vm.free(entry)
            vm.free(target)
            vm.free(vm.evaluate("delete globalThis.__forestay_entry__", "forestay:prelude"))
            vm.collect_garbage()
        return take(vm, roots)
    except GuestError as error:
        raise Problem("internal", "The prelude does not run.", reason=str(error)[:2000]) from error
    finally:
        vm.close()
