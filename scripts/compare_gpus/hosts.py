"""Measures the GPUs of several machines at once, over ssh: compare_gpus.sh --hosts."""

import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from shared import command_line, measurements
from shared.command_line import FAILED, OK, SKIPPED, WRONG

OPTIONS = ("-oBatchMode=yes -oLogLevel=ERROR -oConnectTimeout=20 -oServerAliveInterval=15 "
           "-oControlMaster=no").split()  # as a master it would outlive its command
running, stopping = set(), False


def stop():
    """Ends the commands that run, and those that are still to come."""
    global stopping
    stopping = True
    for process in list(running):
        process.terminate()


def run(host, *command, stdin=subprocess.DEVNULL):
    """(exit status, last line) of a command. The lines before that are shown as the host's."""
    last = ""
    with subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", start_new_session=True) as process:
        running.add(process)  # of its own session, so that stop() ends it and no Ctrl-C
        if stopping:
            process.terminate()
        for line in process.stdout:
            text = command_line.printable(line.strip())
            if text and last and not stopping:
                print(f"{host}: {last}", flush=True)
            last = text or last
    if process.returncode == 255 and not last.startswith("ssh"):
        last = f"the connection broke, after '{last}'"
    return process.returncode, last or f"{command[0]} ended with {process.returncode}"


def measure(host, place, archive, words, out, who):
    """(exit status, files brought back) of a host, which measures in a folder of its own."""
    there = f".cache/compare_gpus/{place}"
    lock = f"build/as/{place}"  # compare_gpus.sh holds it while it measures
    unpack = (f"mkdir -p {there}/{lock} && cd {there} && exec 9<{lock} && "
              "{ flock -n 9 || { echo another compare_gpus.sh is measuring here; exit 3; }; } && "
              "rm -rf src build/out && tar -xozf -")
    words = shlex.join(["--out", "build/out", "--as", place, *words])
    measuring = f"cd {there} && exec bash scripts/compare_gpus.sh {words}"

    def ssh(mode, script):  # bash -l reads the profile, where modules and PATH are set
        return ["ssh", mode, *OPTIONS, host, f"exec bash -lc {shlex.quote(script)}"]

    with open(archive, "rb") as files, tempfile.TemporaryDirectory() as brought:
        sent, said = run(host, *ssh("-T", unpack), stdin=files)
        status = FAILED
        if not sent:  # with -tt, what runs there ends with the connection
            status, said = run(host, *ssh("-tt", measuring))
        if not sent and status != SKIPPED:
            results = f"{host}:{there}/build/out/*.csv"
            copied, problem = run(host, "scp", "-q", *OPTIONS, results, brought)
            if copied and status == OK:
                status, said = FAILED, problem
        new = sorted(Path(brought).iterdir())
        try:
            for file in new:
                measurements.read(file)
        except measurements.TableError as error:
            status, said, new = FAILED, str(error).replace(f"{brought}/", ""), []
        new = [shutil.move(str(file), str(out / file.name)) for file in new]
    if new and not stopping:
        print(f"{host}: {said}", flush=True)
    elif not stopping:
        command_line.say(who, f"{host}: {said}")
    return status if status in (OK, WRONG, SKIPPED) else FAILED, new
