"""Runs a script on a terminal, where somebody types."""

import fcntl
import os
import pty
import re
import select
import subprocess
import termios

CTRL_C, CTRL_D = "\x03", "\x04"


def on_a_terminal(command, typed, asks, cwd=None, env=None):
    """(what is shown up to each line that is typed, and after the last; the exit status). A line is
    typed whenever the terminal ends with the pattern `asks`, and no more comes; when no line is
    left, Ctrl-D."""
    keyboard, end = pty.openpty()
    with subprocess.Popen([str(word) for word in command], stdin=end, stdout=end, stderr=end,
                          cwd=cwd, env={**os.environ, "TERM": "xterm", **(env or {})},
                          start_new_session=True,
                          preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) as process:
        os.close(end)
        shown, rest = [""], iter(typed)
        try:
            while True:
                while True:
                    asked = re.search(f"(?:{asks})$", shown[-1])
                    # A prompt may come in parts. What comes never is told by the test's failure.
                    if not select.select([keyboard], [], [], 0.2 if asked else 120)[0]:
                        assert asked, f"nothing more on the terminal after {shown[-1]!r}"
                        break
                    shown[-1] += os.read(keyboard, 65536).decode()
                line = next(rest, CTRL_D)
                shown.append("")
                os.write(keyboard, line.encode() if line in (CTRL_C, CTRL_D) else
                         f"{line}\n".encode())
        except OSError:  # how a terminal ends
            status = process.wait()
        finally:
            if process.poll() is None:
                process.kill()
    os.close(keyboard)
    return shown, status
