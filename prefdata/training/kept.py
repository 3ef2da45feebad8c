"""What a callback of ours takes along in checkpoints."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState


class Kept(TrainerCallback, ExportableState):
    """Attributes named in ``kept`` go into checkpoints, and come back where a run goes on from one."""

    kept: tuple[str, ...] = ()

    def state(self) -> dict[str, Any]:
        """As Trainer stores it."""
        return {"args": {}, "attributes": {n: getattr(self, n) for n in self.kept}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take up what the checkpoint has."""
        found = state.stateful_callbacks.setdefault(type(self).__name__, self.state())
        for name, value in found["attributes"].items():
            setattr(self, name, value)
