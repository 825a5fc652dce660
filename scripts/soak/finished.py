"""The finished runs of a series, kept in a file so that an interrupted soak can go on."""

import contextlib
import json

from command_line import FAILED, OK, SKIPPED, WRONG


def read_lines(file):
    """What a file's lines hold. The last one may be cut off."""
    found = []
    with contextlib.suppress(FileNotFoundError, ValueError):
        for line in file.read_text(encoding="utf-8").splitlines():
            found.append(json.loads(line))
    return found


class Finished:
    """A line of JSON for each run."""

    def __init__(self, file):
        self.runs = {run["run"]: run for run in read_lines(file)}
        file.parent.mkdir(parents=True, exist_ok=True)
        self.file = file.open("w", encoding="utf-8")
        for run in self.runs.values():
            self._write(run)

    def _write(self, run):
        print(json.dumps(run), file=self.file, flush=True)

    def add(self, i, command, seconds, outcome):
        self.runs[i] = {"run": i, "command": str(command), "code": outcome.code,
                        "seconds": round(seconds, 2), "error": outcome.error,
                        "alike": outcome.alike}
        self._write(self.runs[i])

    @property
    def failed(self):
        return [run for _, run in sorted(self.runs.items()) if run["error"]]

    @property
    def alike(self):
        """How many launches gave the same bits as the same launch before."""
        return sum(run.get("alike", 0) for run in self.runs.values())

    @property
    def status(self):
        """The exit status that all runs together call for."""
        if self.failed:
            return WRONG if any(run["code"] == WRONG for run in self.failed) else FAILED
        return OK if any(run["code"] == OK for run in self.runs.values()) else SKIPPED

    def summary(self):
        """How many runs, and of each failure the command that repeats it, and why."""
        skipped = sum(run["code"] == SKIPPED for run in self.runs.values())
        verified = len(self.runs) - skipped - len(self.failed)
        seconds = sum(run["seconds"] for run in self.runs.values())
        lines = [f"{len(self.runs)} runs, {seconds:.0f} s: {verified} verified, {skipped} skipped, "
                 f"{len(self.failed)} failed"]
        for run in self.failed:
            lines += ["", run["command"], f"    exit status {run['code']}: {run['error']}"]
        return "\n".join(lines)
