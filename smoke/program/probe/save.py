"""Write a text to a file: `python -m probe.save FILE TEXT`. The folder is created."""

import sys
from pathlib import Path

if __name__ == "__main__":
    file = Path(sys.argv[1])
    text = sys.argv[2]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
