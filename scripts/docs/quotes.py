"""Code that documents quote: below a comment that says which, as in a slide (see slides.py).

    <!-- quote src=src/2_matmul_sharedmem.cu kernel=matmul_sharedmem from="float sum" to="C[row" -->
    ```cpp
    what stands there now
    ```
"""

import re

import slides
from shared.command_line import USAGE, Stop

QUOTE = re.compile(r"^(?P<head><!-- quote (?P<options>.*) -->\n)```cpp\n(?:.*\n)*?```$",
                   re.MULTILINE)


def updated(text, document):
    """A document's text with all its quotes as the sources are now."""

    def write(quote):
        try:
            code = slides.named_excerpt(quote["options"])
        except ValueError:
            raise Stop(f"{document.name}: {quote['options']} is no quote: it takes src=FILE, and "
                       "kernel, from and to", USAGE)
        except Stop as stop:
            raise Stop(f"{document.name}: {stop}", stop.status)
        return f"{quote['head']}```cpp\n{code}\n```"

    return QUOTE.sub(write, text)
