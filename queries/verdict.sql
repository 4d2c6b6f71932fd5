-- One row per replay of a case through a gateway: what it means. First that holds:
--   measurement_failed    there was no measurement; never excused
--   missing               answered 200, and no request reached the engine; never excused
--   not_applicable        no such case can exist for the checkpoint
--   disputed              there are two truths; reason: which the gateway equals, hf, vllm, neither or unknown
--   policy                the output is malformed: no template writes it; reason: none_documented, there is no rule for it
--   engines_split         there is no truth, and pinned releases of engines differ
--   unverified            there is no truth (no_reference), or not of the ids the engine gave (other_output), or
--                         nothing was seen to compare by (not_observable)
--   rejected              refused, and the truth is a result; reason: the gateway's code
--   regression            differs from the truth
--   known_difference      one of these two, and listed as such in queries/known; reason: which
--   known_but_matches     equals the truth, the case is listed, and nothing of it differs any more
--   engine_defect         equals the truth, and the pinned release of an engine does not
--   engine_defect_waived  so, and each such engine has an active waiver
--   match                 equals the truth
-- Of two encoders' answers the settled one counts, and of two the one that is equal.
--
-- gate          pass, fail, none or no_verdict
-- standing      of the case, as in standing.sql
-- what          differs first: rejected, accepted (the truth refuses), prompt-ids (of a stream: others than at once), ids,
--               text, pieces, framing, message, finish-reason, usage or buffered; same; null when nothing was compared. A
--               fact on disputed rows too
-- field         of a message, the violated rule of the framing, the count that is wrong
-- first_layer   template, special_tokens, tokens, detokenize, parse, streaming or api, of what differs from a truth, and
--               of what says neither what the reference nor what vLLM says, beside the reference. A stream that is wrong
--               as the answer in one piece is belongs to that one's layer, any other to streaming
-- localisation  exact; at_or_before when a layer before it was not seen, or is wrong in another way
-- respelled     arguments of the truth's value in other bytes
-- coverage      full; text when of a text in pieces only the whole was compared; message when no usage was seen beside it
-- engines       whose pinned release differs from the truth under some plan, waived those with an active waiver
-- known         the entry that excuses the row, or has to go
-- code, message what the gateway said, or what was seen to fail
-- encoder       whose answer was compared with
-- fingerprint   one per finding: target, layer, what, field or code, checkpoint; of rows that fail, have no verdict, are
--               excused as known, or say what neither side of a dispute says: these begin with the verdict
with

-- of a prompt ids alone are judged
claimed as (
    select
        claims.* exclude (content, reasoning_content) replace (if(claims.kind = 'render', null, claims.text) as text),
        standing.state,
        list_position(['settled', 'provisional'], standing.state) as truth,
    from claims
    inner join standing
        on claims.checkpoint = standing.checkpoint
        and claims.kind = standing.kind
        and claims.case_id = standing.case_id
        and claims.encoder is not distinct from standing.encoder
        and claims.given is not distinct from standing.given
),

-- a case has one answer, or one per encoder: the class's is the other
one as (
    select *
    from claimed
    where encoder is distinct from 'class'
),

other as (
    select *
    from claimed
    where encoder = 'class'
),

-- what a gateway sent its engine when the same was asked at once
asked_at_once as (
    select target, checkpoint, case_id, given, prompt
    from observed
    where kind = 'parse' and not streamed and prompt is not null
),

-- an answer is of the output it was given; a refusal gave none. Of a stream the prompt is held against that: the request
-- is the same
both_sides as not materialized (
    select
        observed.* exclude (content, reasoning_content),
        one.state as one_state,
        one.truth as one_truth,
        one.encoder as one_encoder,
        one.text as one_text,
        one.spelling as one_spelling,
        one.case_id is not null and (one.given is null or one.given is not distinct from observed.given) as one_fits,
        coalesce(observed.prompt <> asked_at_once.prompt, false) as prompts_differ,
        departure_of_stream(departure(one, observed), prompts_differ) as one_what,
        is_said(one, observed) as one_said,
        other.state as other_state,
        other.truth as other_truth,
        other.encoder as other_encoder,
        other.text as other_text,
        other.spelling as other_spelling,
        other.case_id is not null
        and (other.given is null or other.given is not distinct from observed.given) as other_fits,
        departure_of_stream(departure(other, observed), prompts_differ) as other_what,
        is_said(other, observed) as other_said,
        coalesce(cases.malformed, false) as malformed,
    from observed
    left join one
        on observed.checkpoint = one.checkpoint and observed.kind = one.kind and observed.case_id = one.case_id
    left join other
        on observed.checkpoint = other.checkpoint and observed.kind = other.kind and observed.case_id = other.case_id
    left join cases on observed.case_id = cases.case_id
    left join asked_at_once
        on observed.streamed
        and observed.target = asked_at_once.target
        and observed.checkpoint = asked_at_once.checkpoint
        and observed.case_id = asked_at_once.case_id
        and observed.given is not distinct from asked_at_once.given
),

chosen as (
    select
        *,
        case
            when 'disputed' in (one_state, other_state) then 'disputed'
            when one_truth is not null or other_truth is not null
                then ['settled', 'provisional'][least(one_truth, other_truth)]
            when 'not_applicable' in (one_state, other_state) then 'not_applicable'
            else 'no_truth'
        end as standing,
        case
            when not other_fits then false
            when not one_fits then true
            when one_truth is distinct from other_truth then coalesce(other_truth, 3) < coalesce(one_truth, 3)
            else one_what is distinct from 'same' and other_what = 'same'
        end as takes_other,
    from both_sides
),

fitting as (
    select
        * exclude (
            one_state, one_truth, one_encoder, one_text, one_spelling, one_what,
            other_state, other_truth, other_encoder, other_text, other_spelling, other_what
        ),
        one_fits or other_fits as fits,
        if(fits, if(takes_other, other_truth, one_truth), null) as truth,
        if(fits, if(takes_other, other_encoder, one_encoder), null) as encoder,
        if(takes_other, other_text, one_text) as claim_text,
        if(takes_other, other_spelling, one_spelling) as claim_spelling,
        if(fits, if(takes_other, other_what, one_what), null) as what,
    from chosen
),

layered as (
    select *, departure_layer(fitting, claim_text, what) as layer
    from fitting
),

beside as materialized (
    select
        target,
        checkpoint,
        kind,
        case_id,
        streamed,
        plan,
        mode,
        outcome,
        given,
        reason_code,
        reason,
        http_status,
        parser_used,
        standing,
        malformed,
        fits,
        truth,
        encoder,
        what,
        case what when 'framing' then framing when 'usage' then wrong_usage(layered) end as field,
        layer,
        is_localised(layered, claim_text, layer) as localised,
        what = 'same' and coalesce(claim_spelling <> spelling, false) as respelled,
        case
            when what is null then null
            when kind = 'detokenize' and answer = 'result' and value is null then 'text'
            when kind = 'parse' and answer = 'result' and not counts_are_seen(layered) then 'message'
            else 'full'
        end as coverage,
        one_fits and one_said or other_fits and other_said as as_reference,
    from layered
),

-- the few replays of which more has to be known than how they compare
looked_at as materialized (
    select
        observed.*,
        beside.standing,
        beside.encoder,
        beside.what,
        beside.field,
        beside.layer,
        beside.localised,
    from observed
    inner join beside
        on observed.target = beside.target
        and observed.checkpoint = beside.checkpoint
        and observed.kind = beside.kind
        and observed.case_id = beside.case_id
        and observed.mode = beside.mode
        and observed.given is not distinct from beside.given
    where beside.standing = 'disputed' or beside.truth is not null and beside.what <> 'same'
),

-- of messages that differ: where
parts as (
    select
        looked_at.target,
        looked_at.checkpoint,
        looked_at.kind,
        looked_at.case_id,
        looked_at.mode,
        looked_at.given,
        any_value(message_part(claims, looked_at)) as part,
    from looked_at
    inner join claims
        on looked_at.checkpoint = claims.checkpoint
        and looked_at.kind = claims.kind
        and looked_at.case_id = claims.case_id
        and looked_at.encoder is not distinct from claims.encoder
        and looked_at.given is not distinct from claims.given
    where looked_at.what = 'message'
    group by all
),

pinned as not materialized (
    select evidence.*
    from evidence
    semi join (select * from engines where pinned) as releases
        on evidence.engine = releases.engine and evidence.engine_version = releases.engine_version
),

-- of disputed cases: whether a front end of vLLM says the same, under any plan
front_ends as (
    select
        looked_at.target,
        looked_at.checkpoint,
        looked_at.kind,
        looked_at.case_id,
        looked_at.mode,
        looked_at.given,
        bool_or(is_said(pinned, looked_at)) as as_vllm,
    from looked_at
    inner join pinned
        on looked_at.checkpoint = pinned.checkpoint
        and looked_at.kind = pinned.kind
        and looked_at.case_id = pinned.case_id
        and coalesce(looked_at.given, ''::blob) = coalesce(pinned.given, ''::blob)
    where looked_at.standing = 'disputed' and pinned.engine in ('vllm', 'vllm-rust')
    group by all
),

without_truth as (
    select pinned.*
    from pinned
    semi join (select * from beside where standing = 'no_truth' and not malformed) as unknown
        on pinned.checkpoint = unknown.checkpoint
        and pinned.kind = unknown.kind
        and pinned.case_id = unknown.case_id
    where pinned.mode = 'one-shot'
),

-- cases of which engines differ
split as (
    select distinct one.checkpoint, one.kind, one.case_id
    from without_truth as one
    inner join without_truth as other
        on one.checkpoint = other.checkpoint
        and one.kind = other.kind
        and one.case_id = other.case_id
        and coalesce(one.given, ''::blob) = coalesce(other.given, ''::blob)
        and one.engine < other.engine
    where difference(one, other) <> 'same'
),

-- streams that are wrong, and what became of the same output at once
streams as (
    select
        stream.target,
        stream.checkpoint,
        stream.kind,
        stream.case_id,
        stream.mode,
        stream.given,
        any_value(beside.what) as what,
        any_value(beside.layer) as layer,
        any_value(beside.localised) as localised,
        bool_or(
            stream.what = whole.what
            and stream.field is not distinct from whole.field
            and stream.value is not distinct from whole.value
            and finish_class(stream.finish_reason) is not distinct from finish_class(whole.finish_reason)
        ) as as_whole,
    from looked_at as stream
    inner join beside
        on stream.target = beside.target
        and stream.checkpoint = beside.checkpoint
        and stream.kind = beside.kind
        and stream.case_id = beside.case_id
        and stream.given is not distinct from beside.given
    left join looked_at as whole
        on stream.target = whole.target
        and stream.checkpoint = whole.checkpoint
        and stream.kind = whole.kind
        and stream.case_id = whole.case_id
        and stream.given is not distinct from whole.given
        and not whole.streamed
    where stream.streamed and not beside.streamed
    group by all
),

active as (
    select distinct waivers.engine, waivers.checkpoint, waivers.kind, waivers.name
    from waivers
    inner join manifests on waivers.model = manifests.model and waivers.checkpoint = manifests.group_slug
    where waivers.covers
),

wrong_engines as (
    select
        compared.checkpoint,
        compared.kind,
        compared.case_id,
        compared.encoder,
        compared.given,
        list(distinct compared.engine order by compared.engine) as engines,
        list(distinct compared.engine order by compared.engine) filter (where active.engine is not null) as waived,
    from compared
    semi join (select * from engines where pinned) as releases
        on compared.engine = releases.engine and compared.engine_version = releases.engine_version
    left join active
        on compared.engine = active.engine
        and compared.checkpoint = active.checkpoint
        and compared.kind = active.kind
        and split_part(compared.case_id, '/', 3) = active.name
    where compared.what <> 'same'
    group by compared.checkpoint, compared.kind, compared.case_id, compared.encoder, compared.given
),

entries as (
    select
        targets.target,
        known_differences.entry,
        known_differences.verdict,
        known_differences.code,
        not ends_with(known_differences.entry, '*') as exact,
        split_part(known_differences.entry, '/', 1) as checkpoint,
        split_part(known_differences.entry, '/', 2) as kind,
        split_part(known_differences.entry, '/', 3) as name,
    from known_differences
    inner join targets on known_differences.target in (targets.target, targets.gateway)
),

-- the narrowest entry first
listed as (
    select
        replayed.target,
        replayed.checkpoint,
        replayed.kind,
        replayed.case_id,
        list(
            {entry: entries.entry, verdict: entries.verdict, code: entries.code, exact: entries.exact}
            order by length(entries.entry) desc, entries.entry
        ) as entries,
    from (
        select distinct observed.target, observed.checkpoint, observed.kind, observed.case_id
        from observed
        semi join entries on observed.target = entries.target and observed.checkpoint = entries.checkpoint
    ) as replayed
    inner join entries
        on replayed.target = entries.target
        and replayed.checkpoint = entries.checkpoint
        and entries.kind in ('*', replayed.kind)
        and if(
            entries.exact,
            split_part(replayed.case_id, '/', 3) = entries.name,
            starts_with(split_part(replayed.case_id, '/', 3), left(entries.name, -1))
        )
    group by replayed.target, replayed.checkpoint, replayed.kind, replayed.case_id
),

labelled as not materialized (
    select
        beside.* exclude (field),
        coalesce(beside.field, parts.part) as field,
        coalesce(wrong_engines.engines, []) as engines,
        coalesce(wrong_engines.waived, []) as waived,
        case
            when beside.as_reference then 'hf'
            when front_ends.as_vllm then 'vllm'
            when beside.as_reference is null and front_ends.as_vllm is null then 'unknown'
            else 'neither'
        end as side,
        case
            when beside.outcome in ('measurement_failed', 'missing') then beside.outcome
            when beside.standing in ('not_applicable', 'disputed') then beside.standing
            when beside.malformed then 'policy'
            when beside.standing = 'no_truth' and split.case_id is not null then 'engines_split'
            when beside.standing = 'no_truth' or beside.fits and beside.truth is null then 'no_reference'
            when not beside.fits then 'other_output'
            when beside.what is null then 'not_observable'
            when beside.what = 'rejected' then 'rejected'
            when beside.what <> 'same' then 'regression'
            else 'equal'
        end as label,
        label in ('rejected', 'regression')
        or label = 'disputed' and side = 'neither' and coalesce(beside.what <> 'same', false) as differs,
        differs and beside.streamed as is_wrong_stream,
        streams.what as whole_what,
        streams.layer as whole_layer,
        streams.localised as whole_localised,
        coalesce(streams.as_whole, false) as as_whole,
        listed.entries,
        list_filter(
            listed.entries,
            lambda e: e.verdict = label and e.code is not distinct from if(label = 'rejected', beside.reason_code, null)
        )[1].entry as excuse,
    from beside
    left join front_ends
        on beside.target = front_ends.target
        and beside.checkpoint = front_ends.checkpoint
        and beside.kind = front_ends.kind
        and beside.case_id = front_ends.case_id
        and beside.mode = front_ends.mode
        and beside.given is not distinct from front_ends.given
    left join parts
        on beside.target = parts.target
        and beside.checkpoint = parts.checkpoint
        and beside.kind = parts.kind
        and beside.case_id = parts.case_id
        and beside.mode = parts.mode
        and beside.given is not distinct from parts.given
    left join split
        on beside.checkpoint = split.checkpoint and beside.kind = split.kind and beside.case_id = split.case_id
    left join streams
        on beside.target = streams.target
        and beside.checkpoint = streams.checkpoint
        and beside.kind = streams.kind
        and beside.case_id = streams.case_id
        and beside.mode = streams.mode
        and beside.given is not distinct from streams.given
    left join wrong_engines
        on beside.truth is not null
        and beside.checkpoint = wrong_engines.checkpoint
        and beside.kind = wrong_engines.kind
        and beside.case_id = wrong_engines.case_id
        and beside.encoder is not distinct from wrong_engines.encoder
        and beside.given is not distinct from wrong_engines.given
    left join listed
        on beside.target = listed.target
        and beside.checkpoint = listed.checkpoint
        and beside.kind = listed.kind
        and beside.case_id = listed.case_id
),

-- what a listed case still shows: an entry that excuses a row of it is needed, and what was not seen may need one
shown as (
    select
        target,
        checkpoint,
        kind,
        case_id,
        list(distinct excuse) filter (where excuse is not null) as needed,
        is_partial() or bool_or(label in ('measurement_failed', 'missing', 'not_observable', 'other_output')) as unseen,
    from labelled
    where entries is not null
    group by target, checkpoint, kind, case_id
),

judged as (
    select
        labelled.*,
        if(
            labelled.label = 'equal' and not shown.unseen,
            list_filter(
                labelled.entries, lambda e: e.exact and not list_contains(coalesce(shown.needed, []), e.entry)
            )[1].entry,
            null
        ) as needless,
        case
            when labelled.excuse is not null then 'known_difference'
            when labelled.label in ('no_reference', 'other_output', 'not_observable') then 'unverified'
            when labelled.label <> 'equal' then labelled.label
            when needless is not null then 'known_but_matches'
            when labelled.engines = [] then 'match'
            when labelled.engines = labelled.waived then 'engine_defect_waived'
            else 'engine_defect'
        end as verdict,
        case
            when not labelled.differs then null
            when not labelled.is_wrong_stream then labelled.layer
            when labelled.as_whole then labelled.whole_layer
            else 'streaming'
        end as first_layer,
        case
            when not labelled.differs then null
            when not labelled.is_wrong_stream then labelled.localised
            when labelled.as_whole then labelled.whole_localised
            else coalesce(labelled.whole_what = 'same', false)
        end as exactly,
    from labelled
    left join shown
        on labelled.target = shown.target
        and labelled.checkpoint = shown.checkpoint
        and labelled.kind = shown.kind
        and labelled.case_id = shown.case_id
)

select
    judged.target,
    judged.checkpoint,
    judged.kind,
    judged.case_id,
    if(judged.streamed, 'stream', 'full') as mode,
    judged.plan,
    judged.given,
    judged.standing,
    judged.verdict,
    case judged.verdict
        when 'measurement_failed' then judged.reason_code
        when 'missing' then 'no_capture'
        when 'disputed' then judged.side
        when 'policy' then 'none_documented'
        when 'unverified' then judged.label
        when 'rejected' then judged.reason_code
        when 'known_difference' then judged.label
    end as reason,
    case
        when judged.verdict in ('measurement_failed', 'missing') then 'no_verdict'
        when judged.verdict in ('not_applicable', 'disputed', 'unverified') then 'none'
        when judged.verdict in ('rejected', 'regression', 'known_but_matches', 'engine_defect') then 'fail'
        else 'pass'
    end as gate,
    judged.what,
    judged.field,
    judged.first_layer,
    if(judged.exactly, 'exact', if(judged.exactly is null, null, 'at_or_before')) as localisation,
    judged.respelled,
    judged.coverage,
    judged.engines,
    judged.waived,
    coalesce(judged.excuse, judged.needless) as known,
    judged.reason_code as code,
    judged.reason as message,
    judged.http_status,
    judged.parser_used,
    judged.encoder,
    case
        when judged.differs then concat_ws(
            ':',
            judged.target,
            if(judged.verdict = 'disputed', judged.verdict, null),
            judged.first_layer,
            judged.what,
            coalesce(judged.field, if(judged.what = 'rejected', judged.reason_code, null)),
            judged.checkpoint
        )
        when judged.verdict = 'engine_defect'
            then concat_ws(':', judged.target, judged.verdict, array_to_string(judged.engines, '+'), judged.checkpoint)
        when judged.verdict = 'known_but_matches' then concat_ws(':', judged.target, judged.verdict, judged.needless)
        when gate = 'no_verdict'
            then concat_ws(':', judged.target, judged.verdict, judged.reason_code, judged.checkpoint)
    end as fingerprint,
from judged
left join scope on judged.checkpoint = scope.checkpoint
order by judged.target, scope.place nulls last, judged.checkpoint, judged.kind, judged.case_id, judged.given, judged.mode,
    judged.plan
