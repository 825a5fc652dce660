"""Measures the GPUs of several machines over ssh: compare_gpus.sh --hosts.

A host gets the files of this checkout into a folder of its own, measures there (see on_host.sh) and
sends its results back. All of it is one connection, and when that ends, so does what runs there:
the next run goes on from that point."""

import argparse
import contextlib
import gzip
import hashlib
import io
import os
import re
import selectors
import shlex
import shutil
import subprocess
import tarfile
import time
from pathlib import Path
from subprocess import PIPE
from typing import List, NamedTuple

import command_line
import programs
import table
from command_line import FAILED, OK, PROJECT, SKIPPED, WRONG, Stop

FOLDER = ".cache/compare_gpus"  # in the home folder of a host, which several may share
SUITE = "build/suite.txt"  # the version of the files that a host gets
SENT = "build/sent"  # their names: those that the next checkout lacks must go
DONE = Path("build/hosts")  # what complete hosts brought, until all are
MARK = "--- compare_gpus.sh on a host ---"
CHUNK = 1 << 16
SSH = ["ssh", "-T"] + [word for option in (
    "BatchMode=yes", "LogLevel=ERROR", "ConnectTimeout=20",
    "ServerAliveInterval=15", "ServerAliveCountMax=4",  # a minute without a network is the end
) for word in ("-o", option)]


# --- The command line ---------------------------------------------------------------------------


def place(text):
    """What a host is called in the names of files: node1 of me@node1."""
    if not re.fullmatch(r"[A-Za-z0-9_:][A-Za-z0-9_.:@%+-]*", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no name of a machine")
    return command_line.file_stem(text.rpartition("@")[2])


def hosts(text):
    """A parser of "node1,me@node2"."""
    found = [Host(word) for word in text.split(",")]
    places = [host.place for host in found]
    for name in places:
        if places.count(name) > 1:
            raise argparse.ArgumentTypeError(f"'{text}' has two machines called {name}")
    return found


def seconds(text):
    if not re.fullmatch("[1-9][0-9]{0,5}", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no number of seconds")
    return int(text)


# --- What is sent -------------------------------------------------------------------------------


def archive(with_programs):
    """The files that git tracks, as they are now, and perhaps the programs that lie here."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    if listed.returncode:
        raise Stop("--hosts sends the files that git tracks: "
                   + listed.stderr.decode(errors="replace").partition("\n")[0])
    names = os.fsdecode(listed.stdout).split("\0")[:-1]
    if with_programs:
        names += programs.listed() + ["build/toolkit.txt"]
    names = [name for name in dict.fromkeys(names) if os.path.lexists(PROJECT / name)]
    suite = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=PROJECT,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.strip()

    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in ((SENT, "\0".join(names).encode()), (SUITE, suite or b"unknown")):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for name in names:
            tar.add(PROJECT / name, name, recursive=False)
    return stream.getvalue()


def command(host, size, arguments):
    """What the host's shell is told, whichever shell that is. bash reads the profile, where
    modules and PATH are set."""
    words = [MARK, "--as", host.place, *arguments]
    script = (f"mkdir -p {FOLDER}/{host.place}/build && cd {FOLDER}/{host.place} && "
              f"touch {SENT} && xargs -0 rm -f -- <{SENT} && "
              f"head -c {size} | tar --no-same-owner -xzf - && "
              f"exec bash scripts/compare_gpus/on_host.sh {' '.join(map(shlex.quote, words))}")
    return f"exec bash -lc {shlex.quote(script)}"


# --- A host -------------------------------------------------------------------------------------


class Host:
    """A host, and what came of it."""

    def __init__(self, word):
        self.word, self.place = word, place(word)  # as ssh knows it, and as files do
        self.status = OK
        self.files: List[Path] = []

    def say(self, fleet, what):
        command_line.say(fleet.who, f"{self.word}: {what}")

    def fail(self, fleet, reason, status=FAILED):
        self.status = status
        self.say(fleet, reason)

    def measured_before(self, fleet):
        """Whether it had measured all when an earlier run of this command was interrupted, or when
        another host failed."""
        folder = fleet.done / self.place
        if not folder.is_dir():
            return False
        self.publish(fleet, sorted(folder.iterdir()))
        self.say(fleet, "measured before; --fresh measures it again")
        return True

    def take(self, fleet, connection):
        """What an ended connection has brought."""
        try:
            files = unpacked(connection.brought, self.place)
        except tarfile.TarError as error:
            self.fail(fleet, f"what it sent is no archive: {error}")
            return
        status, last = connection.process.returncode, connection.last
        if not files or status not in (OK, WRONG, FAILED, SKIPPED):
            self.fail(fleet, last or f"ended, with status {status}, and did not say why",
                      SKIPPED if status == SKIPPED else FAILED)
            return
        if last:
            self.say(fleet, last)
        self.keep(fleet, status, files)

    def keep(self, fleet, status, files):
        """Checks what it brought, and puts it where results belong."""
        self.status = status
        done, new = fleet.done / self.place, fleet.done / f"{self.place}.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        for name, data in files.items():
            (new / name).write_bytes(data)
        try:
            for name in files:
                table.read(new / name)
        except table.TableError as error:
            self.fail(fleet, error)
        else:
            self.publish(fleet, sorted(new.iterdir()))
        if self.status == OK:
            shutil.rmtree(done, ignore_errors=True)
            new.rename(done)
        else:
            shutil.rmtree(new)

    def publish(self, fleet, files):
        for file in files:
            command_line.write_text(fleet.out / file.name, command_line.read_text(file))
        self.files = [fleet.out / file.name for file in files]


class Connection:
    """What is said and sent between here and a host. Its stdin stays open: see on_host.sh."""

    def __init__(self, fleet, host, selector):
        self.fleet, self.host, self.selector = fleet, host, selector
        self.heard = time.monotonic()
        self.ended = False
        self.unsent = memoryview(fleet.sent)
        self.rest = {"out": b"", "err": b""}  # of a line
        self.begun = {"out": False, "err": False}  # once the mark has come
        self.brings = False  # once it has come on stdout again: then comes the archive
        self.brought = b""
        self.last = ""  # line on stderr, which may be the reason why it ends
        told = command(host, len(fleet.sent), fleet.arguments)
        self.process = subprocess.Popen([*SSH, "--", host.word, told], bufsize=0, stdin=PIPE,
                                        stdout=PIPE, stderr=PIPE)
        for stream, event, do in ((self.process.stdin, selectors.EVENT_WRITE, self.send),
                                  (self.process.stdout, selectors.EVENT_READ, self.listen),
                                  (self.process.stderr, selectors.EVENT_READ, self.overhear)):
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, event, do)

    # These return whether there may be more.

    def send(self):
        self.heard = time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # where it has ended, it says why
            self.unsent = self.unsent[self.process.stdin.write(self.unsent[:CHUNK]):]
            return bool(self.unsent)
        return False

    def listen(self):
        """Shows what it says after the mark, and keeps what follows the second one."""
        data = self.process.stdout.read(CHUNK)
        self.heard, self.ended = time.monotonic(), not data
        if self.brings:
            self.brought += data
            return not self.ended
        for text in self.lines("out", data):
            if text == MARK and self.begun["out"]:
                self.brings, self.brought = True, self.rest["out"]
                break
            if self.begun["out"]:
                print(f"{self.host.word}: {command_line.printable(text)}", flush=True)
            self.begun["out"] |= text == MARK
        return not self.ended

    def overhear(self):
        """Shows what it says on stderr after the mark, but for the last line."""
        data = self.process.stderr.read(CHUNK)
        self.heard = time.monotonic()
        for text in self.lines("err", data or b""):
            if text == MARK:
                self.begun["err"], self.last = True, ""
            elif text:
                if self.last and self.begun["err"]:
                    self.host.say(self.fleet, self.last)
                self.last = re.sub(f"^{re.escape(self.fleet.who)}: ", "", text)
        return bool(data)

    def lines(self, name, data):
        """The lines that new data complete."""
        self.rest[name] += data
        while b"\n" in self.rest[name]:
            line, _, self.rest[name] = self.rest[name].partition(b"\n")
            yield line.decode(errors="replace").strip()

    def close(self):
        """Ends it, if it has not ended by itself."""
        if self.ended:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
            while self.overhear():  # all that there is: a shared connection may keep stderr open
                pass
        if self.process.poll() is None:
            self.process.terminate()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(KeyError):
                self.selector.unregister(stream)
            stream.close()


def unpacked(data, place):
    """{name: bytes} of a host's archive: the files that are called as its results are."""
    files = {}
    if data:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for member in tar:
                name = os.path.basename(member.name)
                if member.isfile() and re.fullmatch(f"[a-z0-9-]+@{place}[.]csv", name):
                    files[name] = tar.extractfile(member).read()
    return files


# --- All of them --------------------------------------------------------------------------------


class Fleet(NamedTuple):
    """What all hosts are told, and where their results go."""

    who: str
    arguments: List[str]
    out: Path
    patience: int
    sent: bytes
    done: Path


def measure(who, options):
    """Measures on all hosts at once. A host that fails says why, in a line."""
    if not shutil.which("ssh"):
        raise Stop("--hosts needs ssh: install its client (openssh-client, openssh-clients)")
    files = archive(options.no_build)
    selection = "\n".join(options.passed_on).replace("--fresh", "").encode()
    done = DONE / hashlib.sha256(selection + files).hexdigest()[:16]
    if options.fresh:
        shutil.rmtree(done, ignore_errors=True)
    options.out.mkdir(parents=True, exist_ok=True)
    fleet = Fleet(who, options.passed_on, options.out, options.patience,
                  gzip.compress(files, 6), done)

    talk(fleet, [host for host in options.hosts if not host.measured_before(fleet)])
    if all(host.status == OK for host in options.hosts):
        shutil.rmtree(done)
        with contextlib.suppress(OSError):  # it holds what another selection has brought
            DONE.rmdir()
    return options.hosts


def talk(fleet, hosts):
    """Measures on some hosts."""
    with selectors.DefaultSelector() as selector:
        connections = []
        try:
            connections += (Connection(fleet, host, selector) for host in hosts)
            while connections:
                for key, _ in selector.select(timeout=1):
                    if not key.data():
                        selector.unregister(key.fileobj)
                for connection in connections[:]:
                    if connection.ended:
                        connections.remove(connection)
                        connection.close()
                        connection.host.take(fleet, connection)
                    elif time.monotonic() > connection.heard + fleet.patience:
                        connections.remove(connection)
                        connection.close()
                        connection.host.fail(fleet, f"not a word for {fleet.patience} s")
        finally:
            for connection in connections:
                connection.close()


def status(hosts):
    """The exit status, as of one machine's programs: see Runner. A host was asked for by its name,
    so to bring nothing is a failure, but for hosts that all lack a GPU."""
    found = {host.status for host in hosts}
    if WRONG in found:
        return WRONG
    if found == {SKIPPED}:
        return SKIPPED
    return FAILED if FAILED in found or not all(host.files for host in hosts) else OK
