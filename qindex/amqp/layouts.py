"""How the methods are laid out as bytes. tools/amqp_methods.py wrote this file.

LAYOUTS has one letter for each field of a method: s short string, S long string, B H I Q unsigned
numbers of 1, 2, 4 and 8 bytes, b a bit, F a table.
"""

from __future__ import annotations

from typing import Any, Final

from qindex.amqp import methods as m

# By (number of the class) << 16 | (number of the method).
LAYOUTS: Final[dict[int, tuple[type[Any], str]]] = {
    0x003C000A: (m.BasicQos, "IHb"),
    0x003C000B: (m.BasicQosOk, ""),
    0x003C0014: (m.BasicConsume, "HssbbbbF"),
    0x003C0015: (m.BasicConsumeOk, "s"),
    0x003C001E: (m.BasicCancel, "sb"),
    0x003C001F: (m.BasicCancelOk, "s"),
    0x003C0028: (m.BasicPublish, "Hssbb"),
    0x003C0032: (m.BasicReturn, "Hsss"),
    0x003C003C: (m.BasicDeliver, "sQbss"),
    0x003C0046: (m.BasicGet, "Hsb"),
    0x003C0047: (m.BasicGetOk, "QbssI"),
    0x003C0048: (m.BasicGetEmpty, "s"),
    0x003C0050: (m.BasicAck, "Qb"),
    0x003C005A: (m.BasicReject, "Qb"),
    0x003C0064: (m.BasicRecoverAsync, "b"),
    0x003C006E: (m.BasicRecover, "b"),
    0x003C006F: (m.BasicRecoverOk, ""),
    0x003C0078: (m.BasicNack, "Qbb"),
    0x000A000A: (m.ConnectionStart, "BBFSS"),
    0x000A000B: (m.ConnectionStartOk, "FsSs"),
    0x000A0014: (m.ConnectionSecure, "S"),
    0x000A0015: (m.ConnectionSecureOk, "S"),
    0x000A001E: (m.ConnectionTune, "HIH"),
    0x000A001F: (m.ConnectionTuneOk, "HIH"),
    0x000A0028: (m.ConnectionOpen, "ssb"),
    0x000A0029: (m.ConnectionOpenOk, "s"),
    0x000A0032: (m.ConnectionClose, "HsHH"),
    0x000A0033: (m.ConnectionCloseOk, ""),
    0x000A003C: (m.ConnectionBlocked, "s"),
    0x000A003D: (m.ConnectionUnblocked, ""),
    0x000A0046: (m.ConnectionUpdateSecret, "Ss"),
    0x000A0047: (m.ConnectionUpdateSecretOk, ""),
    0x0014000A: (m.ChannelOpen, "s"),
    0x0014000B: (m.ChannelOpenOk, "S"),
    0x00140014: (m.ChannelFlow, "b"),
    0x00140015: (m.ChannelFlowOk, "b"),
    0x00140028: (m.ChannelClose, "HsHH"),
    0x00140029: (m.ChannelCloseOk, ""),
    0x001E000A: (m.AccessRequest, "sbbbbb"),
    0x001E000B: (m.AccessRequestOk, "H"),
    0x0028000A: (m.ExchangeDeclare, "HssbbbbbF"),
    0x0028000B: (m.ExchangeDeclareOk, ""),
    0x00280014: (m.ExchangeDelete, "Hsbb"),
    0x00280015: (m.ExchangeDeleteOk, ""),
    0x0028001E: (m.ExchangeBind, "HsssbF"),
    0x0028001F: (m.ExchangeBindOk, ""),
    0x00280028: (m.ExchangeUnbind, "HsssbF"),
    0x00280033: (m.ExchangeUnbindOk, ""),
    0x0032000A: (m.QueueDeclare, "HsbbbbbF"),
    0x0032000B: (m.QueueDeclareOk, "sII"),
    0x00320014: (m.QueueBind, "HsssbF"),
    0x00320015: (m.QueueBindOk, ""),
    0x0032001E: (m.QueuePurge, "Hsb"),
    0x0032001F: (m.QueuePurgeOk, "I"),
    0x00320028: (m.QueueDelete, "Hsbbb"),
    0x00320029: (m.QueueDeleteOk, "I"),
    0x00320032: (m.QueueUnbind, "HsssF"),
    0x00320033: (m.QueueUnbindOk, ""),
    0x0055000A: (m.ConfirmSelect, "b"),
    0x0055000B: (m.ConfirmSelectOk, ""),
}
CODES: Final[dict[type[Any], int]] = {kind: code for code, (kind, _) in LAYOUTS.items()}
