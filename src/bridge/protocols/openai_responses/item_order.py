"""Puts output items into order: the first that is not complete is told as it comes, the others wait, bounded.

An item is known by its `output_index`; ids help where a server numbers its items wrongly. The event that ends the
response holds all items once more: those that are known add what was missing, the others are new.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bridge.canonical.json import dumps
from bridge.canonical.sequencer import MAX_HELD_CHARACTERS, SequenceError
from bridge.protocols.openai_responses.items import kind_for, new_item
from bridge.protocols.openai_responses.raw_json import objects_in, text_of

if TYPE_CHECKING:
    from bridge.canonical.events import StreamEvent
    from bridge.canonical.json import WireObject
    from bridge.protocols.openai_responses.items import Item, Telling

ADDED = "response.output_item.added"
DONE = "response.output_item.done"


@dataclass(slots=True, eq=False)
class _Slot:
    """One place in the output."""

    index: int
    arrival: int
    type: str = ""
    ids: set[str] = field(default_factory=set)
    call_id: str = ""
    item: Item | None = None
    is_complete: bool = False
    waiting: list[WireObject] = field(default_factory=list)

    def learn(self, item: WireObject) -> None:
        self.type = text_of(item.get("type")) or self.type
        self.call_id = text_of(item.get("call_id")) or self.call_id
        self.ids |= {text_of(item.get("id"))} - {""}


class OutputItems:
    """`take` each event of an item, `settle` with the whole output, `finish` when there is no more."""

    def __init__(self, telling: Telling) -> None:
        self._telling = telling
        self._slots: list[_Slot] = []
        self._by_index: dict[int, _Slot] = {}
        self._head: _Slot | None = None
        self._held = 0

    def take(self, event: WireObject, out: list[StreamEvent]) -> None:
        slot = self._slot_of(event)
        if event["type"] in (ADDED, DONE):
            slot.learn(event["item"])
        elif not slot.type:
            slot.type = kind_for(event)
        self._pass_on(slot, event, out)

    def settle(self, output: object, out: list[StreamEvent]) -> None:
        """All items as the end of the response tells them; some servers leave them out there."""
        taken: set[int] = set()
        for position, item in enumerate(objects_in(output)):
            candidates = [slot for slot in self._slots if slot.arrival not in taken]
            slot = _matching(candidates, position, item) or self._new_slot(position)
            taken.add(slot.arrival)
            slot.learn(item)
            self._pass_on(slot, {"type": DONE, "item": item}, out)

    def finish(self, out: list[StreamEvent]) -> None:
        """The answer ended: say what waits, close what is open."""
        while (slot := self._first_open()) is not None:
            self._head = slot
            self._drain(slot, out)
            if not slot.is_complete and slot.item is not None:
                slot.item.abandon()
            slot.is_complete = True
        self._telling.blocks.close(out)

    def _pass_on(self, slot: _Slot, event: WireObject, out: list[StreamEvent]) -> None:
        if slot.is_complete:
            return
        if self._head is None:
            self._head = self._first_open()
        if slot is not self._head:
            self._hold(slot, event)
            return
        self._apply(slot, event, out)
        while self._head is not None and self._head.is_complete:
            self._head = self._first_open()
            if self._head is not None:
                self._drain(self._head, out)

    def _drain(self, slot: _Slot, out: list[StreamEvent]) -> None:
        waiting, slot.waiting = slot.waiting, []
        for event in waiting:
            if not slot.is_complete:
                self._apply(slot, event, out)

    def _hold(self, slot: _Slot, event: WireObject) -> None:
        self._held += len(dumps(event))
        if self._held > MAX_HELD_CHARACTERS:
            raise SequenceError("too much of the answer is waiting for an unfinished item")
        slot.waiting.append(event)

    def _apply(self, slot: _Slot, event: WireObject, out: list[StreamEvent]) -> None:
        kind = event["type"]
        if slot.item is None or (kind == DONE and slot.item.type != slot.type):
            slot.item = new_item(slot.type, self._telling)
        if kind == ADDED:
            slot.item.begin(event["item"], out)
        elif kind == DONE:
            slot.item.settle(event["item"], out)
            slot.is_complete = True
            self._telling.blocks.close(out)
        else:
            slot.item.feed(event, out)

    def _slot_of(self, event: WireObject) -> _Slot:
        item = event["item"] if event["type"] in (ADDED, DONE) else {"id": event.get("item_id")}
        item_id = text_of(item.get("id"))
        index = event.get("output_index")
        if not isinstance(index, int):
            named = next((slot for slot in self._slots if item_id and item_id in slot.ids), None)
            last = self._slots[-1] if self._slots and event["type"] != ADDED else None
            return named or last or self._new_slot(len(self._slots))
        known = self._by_index.get(index)
        if known is None:
            return self._new_slot(index)
        is_another = known.is_complete and event["type"] in (ADDED, DONE) and item_id and item_id not in known.ids
        return self._new_slot(index) if is_another else known

    def _new_slot(self, index: int) -> _Slot:
        slot = _Slot(index, len(self._slots))
        self._slots.append(slot)
        self._by_index[index] = slot
        return slot

    def _first_open(self) -> _Slot | None:
        unfinished = [slot for slot in self._slots if not slot.is_complete]
        return min(unfinished, key=lambda slot: (slot.index, slot.arrival), default=None)


def _matching(slots: list[_Slot], position: int, item: WireObject) -> _Slot | None:
    """The slot that an item of the whole output stands in: by id, for lack of one by its place, then by its kind.

    Some servers give an item another id in every event; calls are told apart by their call ids.
    """
    item_id, call_id, kind = (text_of(item.get(name)) for name in ("id", "call_id", "type"))
    for slot in slots:
        if (item_id and item_id in slot.ids) or (call_id and call_id == slot.call_id):
            return slot
    alike = [slot for slot in slots if slot.type in ("", kind) and (not slot.call_id or not call_id)]
    return next((slot for slot in alike if slot.index == position), alike[0] if alike else None)
