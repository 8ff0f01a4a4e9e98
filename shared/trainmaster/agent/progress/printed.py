"""How far a program is, from the last lines that it printed, for `collector.py`.

| convention                      | position                     | metrics                  |
| ------------------------------- | ---------------------------- | ------------------------ |
| tqdm: Hugging Face's Trainer    | the bar that began first     | postfix: `name=value`    |
| Lightning: a bar `Epoch 3`      | the step; no number of steps | postfix: `name=value`    |
| Keras: `Epoch 3/10`, then a bar | epochs and steps             | ` - name: value`         |
|   of one epoch                  |                              |                          |
| a dict (Hugging Face)           |                              | `'name': value`          |
| `Epoch 3/10, step 45/100`, or   | epochs and steps             | `loss 0.3`, `lr=1e-3`, … |
|   `iteration 10/500`            |                              |                          |

Bars of downloads, evaluations and the like, and full bars, are no progress. Neither is a full count
of steps that is all that the lines say, such as `batch 32/32`: only what advances counts. A
learning rate that stands alone in its line is a setting, and no metric. Nothing that a program
prints raises an error, and the cost has a limit: patterns are searched in lines of bounded length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from trainmaster.agent.model.reading import Reading

TEXT_CHARS_MAX = 1 << 14
"""How much of the end of the output is read."""
LINE_CHARS_MAX = 1000
"""How much of each line is read."""

_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[A-Za-z]|\][^\x07\x1b]{0,200}\x07)")
_NUMBER = (
    r"([-+]?(?:(?:\d{1,30}\.?\d{0,30}|\.\d{1,30})(?:[eE][-+]?\d{1,4})?|(?i:nan|inf(?:inity)?)))"
    r"(?!\.?\w|%)"
)
"""A number, also one that is NaN or infinite."""
# tqdm's bar: steps, number of steps, elapsed time, and what follows
_BAR = re.compile(
    r"\d{1,3}%\|[^|]{0,300}\|\s{0,20}(\d{1,15})/(\d{1,15}) \[((?:\d{1,6}:)?\d{1,4}:\d\d)<(.{0,500})"
)
_OPEN_BAR = re.compile(r"\|\s{0,20}\d{1,15}/\? \[(.{0,500})")
"""A bar without a number of steps, as Lightning prints it until the end of a resumed epoch."""
# Words in the name of a bar that is not about training
_NO_TRAINING = re.compile(
    r"(?i)download|\bmap\b|filter|generating|loading|tokeniz|fetch|resolv|sav|upload|extract|unpack"
    r"|eval|val\b|valid|test|predict|sanity|infer|warm"
)
# Keras's bar of an epoch, and a named epoch or step: its number, and how many there are
_KERAS = re.compile(r"\s{0,20}(\d{1,15})/(\d{1,15})\s{1,4}[━\[]")
_EPOCH = re.compile(r"(?i)\bepochs?[\s:=\[(#]{0,4}(\d{1,9})(?:\s?(?:/|of)\s?(\d{1,9}))?")
_STEP = re.compile(
    r"(?i)\b(?:global_?)?"
    r"(?:steps?|iter|iters|iterations?|batch(?=[\s\[]{1,4}\d{1,16}\s?/))\b"
    r"[\s:=\[(#]{0,12}(\d{1,16})(?:\s{0,12}(?:/|of)\s{0,12}(\d{1,16}))?(?![\w.])"
)
# Metrics, name and value, as the table above has them
_POSTFIX = re.compile(rf"([A-Za-z][\w/.-]{{0,60}})={_NUMBER}")
_AFTER_BAR = re.compile(rf" - ([A-Za-z][\w/.]{{0,60}}): {_NUMBER}")
_IN_DICT = re.compile(rf"'([^']{{1,60}})': '?{_NUMBER}")
_COMMON = re.compile(
    r"(?i)(?<![\w/])("
    r"(?:(?:train(?:ing)?|val(?:id(?:ation)?)?|eval|test|lm|total|avg|average|running|mean) "
    r"|[a-z]\w{0,40}[_/])?"
    r"(?:loss|acc|accuracy|perplexity|ppl|lr|learning[_ ]rate|grad[_ ]norm|reward|auc|f1|mae|mse"
    r"|rmse))"
    rf"\s{{0,3}}[:=]?\s{{0,3}}{_NUMBER}"
)
"""A common name of a metric, perhaps with what it is of, and its value: `val_loss: 0.31`."""
_LEARNING_RATE = re.compile(r"\b(?:\w{0,60}_)?(?:lr|learning[_ ]rate)$")
"""The name of a learning rate. Programs print it with their configuration, too: a line without
another metric is no sign of training.
"""
_NO_METRIC = frozenset({"v_num"})  # Lightning's number of the run


class _Count(NamedTuple):
    """Steps or epochs, such as `3/10`. Of epochs, `done` is the number of the epoch that runs."""

    done: int
    total: int

    @property
    def makes_sense(self) -> bool:
        return 0 < self.total >= self.done


class _Ordinal(NamedTuple):
    """The number of a step or epoch."""

    number: int
    total: int | None
    """How many there are; None: the program does not print it."""


class _Bar(NamedTuple):
    """A progress bar of tqdm."""

    elapsed_s: int
    steps: _Count
    epoch: _Ordinal | None
    """The epoch that the bar is about; None if its name has no epoch."""


class _Position:
    """What was found so far in the lines, which are read from the last one to the first."""

    def __init__(self) -> None:
        self.bar: _Bar | None = None
        self.inner: _Count | None = None
        """Steps of one epoch, which are printed after the number of that epoch."""
        self.epoch: _Count | None = None
        self.step: _Ordinal | None = None
        """The step that a line without epochs names."""
        self.has_advanced = False
        """Whether a line before that of `step` has another number."""
        self.names_epoch_zero = False
        self.last_bar: _Count | None = None
        """The last bar, also if it is full."""
        self.is_bar_part = False
        """Whether the last bar began again, as the bar of each epoch does."""
        self._following_done = 0
        """Steps of the bar in the line after this one."""

    def take(self, line: str) -> None:
        """Read the line before those that were read."""
        match = _BAR.search(line)
        if match is None:
            self._take_counts(line)
            return
        name = line[: match.start()]
        self._note_bar(name, _Count(int(match[1]), int(match[2])))
        bar = _parse_bar(name, match)
        # Of nested bars, the one that began first is about the whole job.
        if bar is not None and (self.bar is None or bar.elapsed_s > self.bar.elapsed_s):
            self.bar = bar

    def _take_counts(self, line: str) -> None:
        """Read the epochs and steps that a line without a bar of tqdm names."""
        keras = _KERAS.match(line)
        epoch = _EPOCH.search(line)
        step = _STEP.search(line)
        has_epochs = epoch is not None and epoch[2] is not None
        if epoch is not None and has_epochs and int(epoch[1]) == 0:
            self.names_epoch_zero = True
        if epoch is not None and has_epochs and self.epoch is None:
            count = _Count(int(epoch[1]), int(epoch[2]))
            self.epoch = count if count.makes_sense else None
        # In a line with an epoch, a count of steps is about that epoch, as a bar of Keras is.
        has_total = step is not None and bool(step[2])
        within_epoch = step if keras is None and has_epochs and has_total else keras
        if within_epoch is not None:
            count = _Count(int(within_epoch[1]), int(within_epoch[2]))
            # If a later line named an epoch already, a bar of Keras belongs to an earlier epoch.
            is_newest = self.inner is None and (keras is None or self.epoch is None)
            if is_newest and count.makes_sense:
                self.inner = count
        elif step is not None and self.step is None:
            self.step = _Ordinal(int(step[1]), int(step[2]) if step[2] else None)
        elif step is not None and self.step is not None and int(step[1]) != self.step.number:
            self.has_advanced = True

    def _note_bar(self, name: str, count: _Count) -> None:
        """Note the last bar, and whether an earlier bar with the same total was further on."""
        if not count.makes_sense or _NO_TRAINING.search(name):
            return
        if self.last_bar is None:
            self.last_bar = count
        elif count.total == self.last_bar.total:
            self.is_bar_part |= count.done > self._following_done
        if count.total == self.last_bar.total:
            self._following_done = count.done

    def reading(self, metrics: list[tuple[str, str]]) -> Reading:
        """Return the position that the lines show, and these metrics."""
        reading = self._reading_of_steps(metrics)
        if self.epoch is None:
            return reading
        return replace(
            reading,
            epoch=self.epoch.done,
            epochs=self.epoch.total,
            counts_from_zero=self.names_epoch_zero,
        )

    def _reading_of_steps(self, metrics: list[tuple[str, str]]) -> Reading:
        """Return the position in steps of the whole job, or as a share where no steps are known."""
        bar = self.bar
        epoch = self.epoch
        inner = self.inner
        if bar is not None and bar.epoch is not None:
            number, total = bar.epoch
            if total is None:  # Lightning counts from 0
                return Reading.of_steps(
                    number * bar.steps.total + bar.steps.done, steps=None, metrics=metrics
                )
            epoch = _Count(number, total)
            inner = bar.steps
        elif bar is not None and (epoch is None or bar.steps.total == epoch.total):
            return Reading.of_steps(bar.steps.done, bar.steps.total, metrics)  # of the whole job
        elif bar is not None:
            inner = bar.steps
        completed = max(epoch.done - 1, 0) if epoch is not None else 0  # the last one is running
        if epoch is not None and inner is not None:
            before = completed * inner.total
            return Reading.of_steps(before + inner.done, epoch.total * inner.total, metrics)
        if inner is not None:
            return Reading.of_steps(inner.done, inner.total, metrics)
        step, steps = self.step or (None, None)
        is_only_full_count = step is not None and step == steps and not self.has_advanced
        if is_only_full_count:  # such as `batch 32/32`, the last of an epoch
            step, steps = None, None
        share = completed / epoch.total if epoch is not None else None
        return Reading.of_steps(step, steps, metrics, share)


def read_printed(text: str) -> Reading:
    """Return what the end of an output says. `text` begins with a whole line."""
    position, metrics = _read_lines(text)
    return position.reading(metrics)


def read_last_printed(text: str) -> Reading:
    """Return what the end of the whole output of a program that has ended says.

    A full bar is the end of the work, unless the bar began again before: then it is a part of the
    work, and so is no position at all.
    """
    position, metrics = _read_lines(text)
    reading = position.reading(metrics)
    bar = position.last_bar
    if bar is None or position.epoch is not None:
        return reading
    if position.is_bar_part:
        return replace(reading, share=None, step=None, steps=None)
    if bar.done == bar.total and not (reading.steps and reading.steps != bar.total):
        return replace(reading, share=1.0, step=bar.done, steps=bar.total)
    return reading


def _read_lines(text: str) -> tuple[_Position, list[tuple[str, str]]]:
    """Return the position, and the last value of each metric."""
    plain_text = _ESCAPE.sub("", text[-TEXT_CHARS_MAX:])
    position = _Position()
    metrics: dict[str, str] = {}
    for whole_line in reversed(re.split(r"[\r\n]+", plain_text)):
        line = whole_line[:LINE_CHARS_MAX]
        position.take(line)
        for name, value in _metrics(line):
            metrics.setdefault(name, value)
    return position, list(metrics.items())


def _parse_bar(name: str, match: re.Match[str]) -> _Bar | None:
    """Return tqdm's bar; None if it is no progress."""
    steps = _Count(int(match[1]), int(match[2]))
    if not steps.makes_sense or _NO_TRAINING.search(name):
        return None
    epoch = None
    named_epoch = _EPOCH.search(name)
    if named_epoch is not None:
        epochs = int(named_epoch[2]) if named_epoch[2] else None
        epoch = _Ordinal(int(named_epoch[1]), epochs)
    if steps.done == steps.total and epoch is None:
        return None  # a full bar is no progress, except for that of an epoch
    elapsed_s = 0
    for part in match[3].split(":"):
        elapsed_s = elapsed_s * 60 + int(part)
    return _Bar(elapsed_s, steps, epoch)


def _metrics(line: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of each metric of a line."""
    bar = _BAR.search(line) or _OPEN_BAR.search(line)
    if bar is not None:
        is_training = not _NO_TRAINING.search(line[: bar.start()])
        found = _POSTFIX.findall(bar[bar.lastindex or 0]) if is_training else []
    elif line.startswith("{'"):
        found = _IN_DICT.findall(line)
    elif _KERAS.match(line):
        found = _AFTER_BAR.findall(line)
    else:
        found = [(name.lower(), value) for name, value in _COMMON.findall(line)]
        is_setting = all(_LEARNING_RATE.search(name) for name, _ in found)
        if is_setting and not (_EPOCH.search(line) or _STEP.search(line)):
            found = []
    return ((name, value) for name, value in found if name not in _NO_METRIC)
