"""Runs a script on a terminal, where somebody types."""

import fcntl
import os
import pty
import re
import subprocess
import termios

CTRL_C, CTRL_D = "\x03", "\x04"


def on_a_terminal(command, typed, asks, cwd=None, env=None):
    """(what is shown up to each line that is typed, and after the last; the exit status). A line is
    typed whenever the terminal ends with the pattern `asks`; when no more is left, Ctrl-D."""
    keyboard, end = pty.openpty()
    with subprocess.Popen([str(word) for word in command], stdin=end, stdout=end, stderr=end,
                          cwd=cwd, env={**os.environ, "TERM": "xterm", **(env or {})},
                          start_new_session=True,
                          preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) as process:
        os.close(end)
        shown, rest = [""], iter(typed)
        try:
            while True:
                while not re.search(f"(?:{asks})$", shown[-1]):
                    shown[-1] += os.read(keyboard, 65536).decode()
                line = next(rest, CTRL_D)
                shown.append("")
                os.write(keyboard, line.encode() if line in (CTRL_C, CTRL_D) else
                         f"{line}\n".encode())
        except OSError:  # how a terminal ends
            status = process.wait()
    os.close(keyboard)
    return shown, status
