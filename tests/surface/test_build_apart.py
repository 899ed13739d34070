"""The host answers while an extension is compiled: a real server, real requests, a compiler that stands still."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import httpx

from forestay.console import mounts
from forestay.extensions.compiler.build_process import workshop
from forestay.host import Options
from forestay.kernel import Config, ExtensionConfig
from forestay.surface.hosting import serve
from tests.surface.test_hostapi import EXTENSION


def test_requests_are_answered_while_a_build_is_under_way(tmp_path: Path) -> None:
    (tmp_path / "warm.ts").write_text("export default function () {}\n")
    (tmp_path / "harbour.ts").write_text(EXTENSION)
    config = Config(extensions=ExtensionConfig(paths=["harbour.ts"]))
    options = Options(config=config, root=tmp_path, data=tmp_path / ".forestay")

    async def story() -> None:
        async with asyncio.timeout(60), serve(options, mounts=mounts) as serving:
            await serving.host.extensions.trust.give(serving.host.root)
            await workshop().build(tmp_path / "warm.ts", None)
            (compiler,) = workshop().idle()
            os.kill(compiler, signal.SIGSTOP)
            opening = asyncio.create_task(serving.host.extensions.suite())
            while workshop().idle():  # until the build has taken it
                await asyncio.sleep(0)
            headers = {"Authorization": f"Bearer {serving.services.keys.lend(principal='ann')}"}
            async with httpx.AsyncClient(base_url=serving.url, headers=headers, trust_env=False) as http:
                for _ in range(5):
                    assert (await http.get("/v1/runs")).status_code == 200
                assert not opening.done()
                os.kill(compiler, signal.SIGCONT)
                suite = await opening
                assert [tool.name for tool in suite.tools()] == ["tide"]

    asyncio.run(story())


def test_a_build_beyond_its_deadline_is_a_problem_of_that_extension_alone(tmp_path: Path) -> None:
    (tmp_path / "warm.ts").write_text("export default function () {}\n")
    (tmp_path / "harbour.ts").write_text(EXTENSION)
    config = Config(extensions=ExtensionConfig(paths=["harbour.ts"], build_seconds=0.01))
    options = Options(config=config, root=tmp_path, data=tmp_path / ".forestay")

    async def story() -> None:
        async with asyncio.timeout(60), serve(options, mounts=mounts) as serving:
            await serving.host.extensions.trust.give(serving.host.root)
            await workshop().build(tmp_path / "warm.ts", None)
            (compiler,) = workshop().idle()
            os.kill(compiler, signal.SIGSTOP)
            suite = await serving.host.extensions.suite()
            (failure,) = suite.failures
            assert failure.problem.key == "compile_timeout"
            headers = {"Authorization": f"Bearer {serving.services.keys.lend(principal='ann')}"}
            async with httpx.AsyncClient(base_url=serving.url, headers=headers, trust_env=False) as http:
                told = (await http.get("/host/v1/extensions")).text
                assert "was not compiled within 0.01 seconds" in told

    asyncio.run(story())
