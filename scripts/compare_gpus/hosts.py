"""Measures the GPUs of several machines at once, over ssh: compare_gpus.sh --hosts."""

import asyncio
import shlex
import shutil
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from pathlib import Path

import command_line
from command_line import FAILED, OK, SKIPPED, WRONG

OPTIONS = ("-oBatchMode=yes -oLogLevel=ERROR -oConnectTimeout=20 -oServerAliveInterval=15 "
           "-oControlMaster=no").split()  # as a master it would outlive its command


async def run(host, *command, stdin=DEVNULL):
    """(exit status, last line) of a command. The lines before that are shown as the host's."""
    last, process = "", await asyncio.create_subprocess_exec(
        *command, stdin=stdin, stdout=PIPE, stderr=STDOUT)
    try:
        async for line in process.stdout:
            text = command_line.printable(line.decode(errors="replace").strip())
            if text and last:
                print(f"{host}: {last}", flush=True)
            last = text or last
        return await process.wait(), last
    finally:
        if process.returncode is None:  # interrupted
            process.terminate()
            await process.communicate()


async def measure(host, place, archive, words, out, who):
    """(exit status, files brought back) of a host, which measures in a folder of its own."""
    there = f".cache/compare_gpus/{place}"
    unpack = f"mkdir -p {there} && cd {there} && rm -rf src build/out && tar -xozf -"
    words = shlex.join(["--out", "build/out", "--as", place, *words])
    measuring = f"cd {there} && exec bash scripts/compare_gpus.sh {words}"

    def ssh(mode, script):  # bash -l reads the profile, where modules and PATH are set
        return ["ssh", mode, *OPTIONS, host, f"exec bash -lc {shlex.quote(script)}"]

    with open(archive, "rb") as files, tempfile.TemporaryDirectory() as brought:
        sent, said = await run(host, *ssh("-T", unpack), stdin=files)
        status = FAILED
        if not sent:  # with -tt, what runs there ends with the connection
            status, said = await run(host, *ssh("-tt", measuring))
        if not sent and status != SKIPPED:
            results = f"{host}:{there}/build/out/*.csv"
            copied, problem = await run(host, "scp", "-q", *OPTIONS, results, brought)
            if copied and status == OK:
                status, said = FAILED, problem
        new = [shutil.move(str(file), str(out / file.name)) for file in Path(brought).iterdir()]
    if new:
        print(f"{host}: {said}", flush=True)
    else:
        command_line.say(who, f"{host}: {said}")
    return status if status in (OK, WRONG, SKIPPED) else FAILED, sorted(new)
