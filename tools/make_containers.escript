#!/usr/bin/env escript
%% Makes tests/compat/data/rabbitmq_containers.tsv: message containers, and what RabbitMQ itself makes of them.
%%
%%     ERL_LIBS=/usr/lib/rabbitmq/lib/rabbitmq_server-4.3.5/plugins escript tools/make_containers.escript > FILE
%%
%% A line: name, hex of what a classic queue stores, then what an AMQP 0-9-1 consumer would get: hex of the property
%% list, hex of the body, exchange, routing keys, and the size that the index has. All of it is computed by the node's
%% own modules.
%% Times are fixed, so that the same modules make the same file.

main(_) ->
    [line(Name, Message) || {Name, Message} <- amqp10() ++ amqp10_of_3_13() ++ mqtt() ++ amqp091()].

line(Name, Message0) ->
    Message = mc:prepare(store, Message0),
    Content0 = mc:protocol_state(mc:convert(mc_amqpl, Message)),
    Content = rabbit_binary_generator:ensure_content_encoded(Content0),
    Properties = element(4, Content),
    Body = iolist_to_binary(lists:reverse(element(6, Content))),
    Term = term_to_binary(Message, [{minor_version, 2}, deterministic]),
    {_, Size} = mc:size(Message),
    io:format("~s\t~s\t~s\t~s\t~s\t~s\t~b~n",
              [Name, hex(Term), hex(Properties), hex(Body), mc:exchange(Message),
               lists:join(",", mc:routing_keys(Message)), Size]).

hex(Bytes) ->
    string:lowercase(binary_to_list(binary:encode_hex(Bytes))).

notes(More) ->
    maps:merge(#{x => <<"ex.a">>, rk => [<<"rk.1">>], id => <<1:128>>, rts => 1795237962504}, More).

%% --- AMQP 1.0

amqp10() ->
    Text = data(<<"amqp 1.0 payload">>),
    [{"amqp10_body_only", sent([Text], #{})},
     {"amqp10_full", sent([header(true, 4, 30000), annotations(), properties(), application(), Text], #{})},
     {"amqp10_two_keys_transient", sent([header(false, undefined, undefined), Text], #{rk => [<<"a">>, <<"b">>]})},
     {"amqp10_many_data", sent([data(<<"one ">>), data(<<"two ">>), data(<<>>), data(<<"three">>)], #{})},
     {"amqp10_empty", sent([data(<<>>)], #{})},
     {"amqp10_long", sent([data(binary:copy(<<"0123456789">>, 100))], #{})},
     {"amqp10_value", sent([properties(), {'v1_0.amqp_value', {utf8, <<"a text">>}}], #{})},
     {"amqp10_value_alone", sent([{'v1_0.amqp_value', {map, [{{utf8, <<"k">>}, {list, [null, {int, -7}]}}]}}], #{})},
     {"amqp10_sequence", sent([application(), {'v1_0.amqp_sequence', [{uint, 1}, {utf8, <<"b">>}]}], #{})},
     {"amqp10_footer", sent([Text, {'v1_0.footer', [{{symbol, <<"x-crc">>}, {uint, 9}}]}], #{})},
     {"amqp10_ids", sent([ids({uuid, <<1:128>>}, {ulong, 17}), Text], #{})},
     {"amqp10_binary_ids", sent([ids({binary, <<0, 255>>}, {binary, <<"c">>}), Text], #{})},
     {"amqp10_long_ids", sent([ids({utf8, binary:copy(<<"i">>, 300)}, {utf8, <<"c">>}), Text], #{})},
     {"amqp10_reply_queue", sent([reply({utf8, <<"/queues/a%20b%2Fc">>}), Text], #{})},
     {"amqp10_reply_other", sent([reply({utf8, <<"/exchanges/x/y">>}), Text], #{})},
     {"amqp10_cc", sent([{'v1_0.message_annotations',
                          [{{symbol, <<"x-cc">>}, {list, [{utf8, <<"c1">>}, {utf8, <<"c2">>}]}}]}, Text], #{})},
     {"amqp10_basic", sent([{'v1_0.message_annotations',
                             [{{symbol, <<"x-basic-type">>}, {utf8, <<"ty">>}},
                              {{symbol, <<"x-basic-priority">>}, {ubyte, 7}},
                              {{symbol, <<"x-basic-delivery-mode">>}, {ubyte, 2}},
                              {{symbol, <<"x-basic-expiration">>}, {utf8, <<"5000">>}},
                              {{symbol, <<"x-exchange">>}, {utf8, <<"not seen">>}}]}, Text], #{})},
     {"amqp10_dead", died(sent([properties(), Text], #{}))},
     {"amqp10_noted", sent([Text], #{<<"x-noted">> => <<"by the broker">>, <<"x-count">> => 3,
                                     <<"x-flag">> => true, <<"timestamp_in_ms">> => 1795237962999,
                                     <<"other">> => <<"not a header">>})}].

sent(Sections, More) ->
    Bytes = iolist_to_binary([amqp10_framing:encode_bin(Section) || Section <- Sections]),
    mc:init(mc_amqp, Bytes, notes(More)).

data(Bytes) ->
    {'v1_0.data', Bytes}.

header(Durable, Priority, Ttl) ->
    {'v1_0.header', Durable, typed(ubyte, Priority), typed(uint, Ttl), undefined, undefined}.

typed(_, undefined) -> undefined;
typed(Type, Value) -> {Type, Value}.

properties() ->
    {'v1_0.properties', {utf8, <<"mid">>}, {binary, <<"guest">>}, {utf8, <<"to">>}, {utf8, <<"subject">>},
     {utf8, <<"back">>}, {utf8, <<"corr">>}, {symbol, <<"text/plain">>}, {symbol, <<"gzip">>},
     {timestamp, 1800000000000}, {timestamp, 1700000000000}, {utf8, <<"group">>}, {uint, 5}, {utf8, <<"reply">>}}.

ids(MessageId, CorrelationId) ->
    setelement(7, setelement(2, empty(), MessageId), CorrelationId).

reply(Address) ->
    setelement(6, empty(), Address).

empty() ->
    list_to_tuple(['v1_0.properties' | lists:duplicate(13, undefined)]).

annotations() ->
    {'v1_0.message_annotations',
     [{{symbol, <<"x-opt-text">>}, {utf8, <<"b">>}}, {{symbol, <<"x-opt-list">>}, {list, [{long, 1}, true, null]}},
      {{symbol, <<"x-opt-map">>}, {map, [{{symbol, <<"in">>}, {map, [{{utf8, <<"deep">>}, {ubyte, 1}}]}}]}},
      {{symbol, <<"x-opt-array">>}, {array, utf8, [{utf8, <<"p">>}, {utf8, <<"q">>}]}}]}.

application() ->
    {'v1_0.application_properties',
     [{{utf8, <<"text">>}, {utf8, <<"v">>}}, {{utf8, <<"true">>}, true}, {{utf8, <<"false">>}, false},
      {{utf8, <<"null">>}, null}, {{utf8, <<"ubyte">>}, {ubyte, 255}}, {{utf8, <<"byte">>}, {byte, -1}},
      {{utf8, <<"ushort">>}, {ushort, 65535}}, {{utf8, <<"short">>}, {short, -2}},
      {{utf8, <<"uint">>}, {uint, 16#FFFFFFFF}}, {{utf8, <<"int">>}, {int, -70000}},
      {{utf8, <<"ulong">>}, {ulong, 16#FFFFFFFFFFFFFFFF}}, {{utf8, <<"long">>}, {long, -1 bsl 40}},
      {{utf8, <<"float">>}, {float, 0.5}}, {{utf8, <<"double">>}, {double, 1.1}},
      {{utf8, <<"time">>}, {timestamp, 1700000000999}}, {{utf8, <<"symbol">>}, {symbol, <<"s">>}},
      {{utf8, <<"binary">>}, {binary, <<0, 1, 255>>}}, {{utf8, <<"nan">>}, {as_is, 16#82, <<16#7FF8000000000000:64>>}},
      {{utf8, <<"text">>}, {utf8, <<"a second one">>}}, {{utf8, binary:copy(<<"k">>, 300)}, {utf8, <<"long key">>}}]}.

%% --- as 3.13 keeps AMQP 1.0 messages

amqp10_of_3_13() ->
    [{"amqp10_3_13_" ++ Name, {mc, mc_amqp, Data, notes(#{d => false})}} ||
        {Name, Data} <-
            [{"data", msg(undefined, [], undefined, [], [data(<<"payload">>)])},
             {"full", msg(header(true, 4, 30000), element(2, annotations()), properties(),
                          element(2, application()), [data([<<"pay">>, [<<"lo">>, $a]]), data(<<"d">>)])},
             {"value", msg(header(false, undefined, undefined), [], properties(), [],
                           {'v1_0.amqp_value', {map, [{{utf8, <<"k">>}, {list, [null, true, {boolean, false}, {int, -7},
                             {long, 1 bsl 40}, {ulong, 0}, {uint, 300}, {double, 2.5}, {uuid, <<7:128>>}]}},
                             {{symbol, <<"s">>}, {binary, binary:copy(<<"b">>, 300)}}]}})},
             {"sequence", msg(undefined, [], undefined, [],
                              [{'v1_0.amqp_sequence', [{utf8, <<"a">>}, {list, []}]},
                               {'v1_0.amqp_sequence', [{ubyte, 1}]}])}]].

msg(Header, Annotations, Properties, Application, Data) ->
    {msg, Header, [], Annotations, Properties, Application, Data, []}.

%% --- MQTT

mqtt() ->
    [{"mqtt_plain", mqtt(0, <<"hello">>, #{})},
     {"mqtt_qos1", mqtt(1, [<<"hel">>, "lo"], #{})},
     {"mqtt_full", mqtt(1, <<"body">>, #{'Content-Type' => <<"text/plain">>, 'Correlation-Data' => <<"corr">>,
                                         'Response-Topic' => <<"a/+/b">>, 'Payload-Format-Indicator' => 1,
                                         'Message-Expiry-Interval' => 60,
                                         'User-Property' => [{<<"b">>, <<"2">>}, {<<"a">>, <<"1">>},
                                                             {<<"x-own">>, <<"3">>}, {<<"b">>, <<"4">>}]})},
     {"mqtt_binary_correlation", mqtt(1, <<>>, #{'Correlation-Data' => <<0, 255>>})},
     {"mqtt_dead", died(mqtt(1, <<"body">>, #{}))}].

mqtt(Qos, Payload, Properties) ->
    Message = {mqtt_msg, false, Qos, <<"a/b">>, false, 1, Payload, Properties, undefined},
    {mc, Protocol, Data, Notes} = mc:init(mc_mqtt, Message, notes(#{x => <<"amq.topic">>, rk => [<<"a.b">>]})),
    {mc, Protocol, Data, case Notes of #{ts := _} -> Notes#{ts := 1795237962504}; _ -> Notes end}.

%% --- AMQP 0-9-1

amqp091() ->
    [{"amqpl_plain", basic([{<<"k">>, longstr, <<"v">>}])},
     {"amqpl_dead", died(basic([{<<"z">>, long, 7}, {<<"a">>, longstr, <<"v">>}]))},
     {"amqpl_dead_twice", died(died(basic(undefined)))},
     {"amqpl_dead_3_13", died_3_13(basic(undefined))},
     {"amqpl_noted", mc:set_annotation(<<"x-routed">>, true, basic([{<<"x-routed">>, longstr, <<"own">>}]))},
     {"amqpl_no_ttl", mc:set_ttl(undefined, basic([{<<"k">>, longstr, <<"v">>}]))}].

basic(Headers) ->
    Properties = {'P_basic', <<"text/plain">>, undefined, Headers, 2, 3, <<"corr">>, undefined, <<"60000">>, <<"mid">>,
                  1700000000, undefined, undefined, <<"app">>, undefined},
    mc:init(mc_amqpl, {content, 60, Properties, none, rabbit_framing_amqp_0_9_1, [<<"part2">>, <<"part1-">>]}, notes(#{})).

%% Deaths with fixed times.
died(Message) ->
    {mc, Protocol, Data, Notes} = mc:record_death(expired, <<"q.first">>, mc:record_death(rejected, <<"q.dead">>, Message)),
    Times = [{{Key, Reason}, setelement(5, Death, (element(5, Death))#{first_time := 1795237962504, last_time := 1795237963504})}
             || {{Key, Reason}, Death} <- maps:get(deaths, Notes)],
    {mc, Protocol, Data, Notes#{deaths := Times}}.

died_3_13(Message) ->
    {mc, Protocol, Data, Notes} = Message,
    Death = fun(Last) -> {death, <<"ex.a">>, [<<"rk.1">>, <<"cc">>], 2, #{first_time => 1795237962504, last_time => Last, ttl => 60000}} end,
    Records = #{{<<"q.one">>, expired} => Death(1795237962600), {<<"q.two">>, rejected} => Death(1795237962700)},
    {mc, Protocol, Data, Notes#{deaths => {deaths, {<<"q.one">>, expired}, {<<"q.two">>, rejected}, Records}}}.
