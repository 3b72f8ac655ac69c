"""Checks that the message of a commit has a short subject: `python tools/commit_message.py FILE`.

Git gives its hook `commit-msg` the file with the message. The exit status is 1 if the message
is at fault, and Git then commits nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

LONGEST = 72  # characters of a subject: lists of commits show no more without a break
CUT = "# ------------------------ >8 ------------------------"  # below it, the change that -v shows


def fault(message: str) -> str:
    """The faults of a message; empty if there are none.

    Args:
        message: The text as in Git's file, with lines that begin with `#`, which Git leaves out.

    Returns:
        The fault, and the allowed length of a subject.

    Examples:
        >>> fault("Pools sum in float32\\n\\nSums of float16 lost digits.\\n")
        ''
        >>> fault("Pools sum in float32\\nSums of float16 lost digits.\\n")
        'has no blank line between its subject and its body'
    """
    text = message.split(f"{CUT}\n")[0].splitlines()
    lines = "\n".join(line for line in text if not line.startswith("#")).strip().splitlines()
    if not lines:
        return "has no subject"
    subject = lines[0].rstrip()
    if len(subject) > LONGEST:
        return f"has a subject of {len(subject)} characters; {LONGEST} are the most"
    if len(lines) > 1 and lines[1].strip():
        return "has no blank line between its subject and its body"
    return ""


if __name__ == "__main__":
    if problem := fault(Path(sys.argv[1]).read_text(encoding="utf-8")):
        sys.exit(f"the commit's message {problem}")
