"""`playhead.torch.DataLoader`: the stream through torch's own DataLoader."""

from __future__ import annotations

from playhead.feed.torch_loader import DataLoader

__all__ = ["DataLoader"]
