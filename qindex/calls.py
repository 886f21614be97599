"""Loads qindex._calls: publish, get, ack, nack and touch in C, without cffi in between.

qindex._calls is a second module in the shared library of qindex._core, so that both use the same
engine.
"""

import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec

from qindex._core import __file__ as _library

_NAME = "qindex._calls"
_loader = ExtensionFileLoader(_NAME, _library)
_calls = module_from_spec(ModuleSpec(_NAME, _loader, origin=_library))
_loader.exec_module(_calls)
sys.modules[_NAME] = _calls

QueueCalls = _calls.QueueCalls
MessageFields = _calls.MessageFields
MessageDetails = _calls.MessageDetails
to_deliveries = _calls.to_deliveries
place_bodies = _calls.place_bodies
fan_out = _calls.fan_out
decode_headers = _calls.decode_headers
join_headers = _calls.join_headers
new_message_type = _calls.new_message_type
