-- One row per way in which a front end of vLLM differs from the reference: fingerprint, kind, field of the message, and
-- whether it shows only when the output is streamed in chunks. It was seen with the releases first_version to
-- last_version; age is their number. status: open at the pinned release; gone, when all cases it was last seen with were
-- asked again there; unmeasured, when some were not. cases are those of last_version. What the two sides of an example
-- say is in dispute_examples.sql: this query reads digests alone.
with

front_ends as (
    select engine, engine_version, release_order, pinned
    from engines
    where engine in ('vllm', 'vllm-rust')
),

-- the first difference of each answer, as in `standing`
differing as (
    select
        compared.engine,
        compared.engine_version,
        any_value(front_ends.release_order) as release_order,
        any_value(front_ends.pinned) as pinned,
        compared.checkpoint,
        compared.kind,
        compared.case_id,
        compared.encoder,
        compared.given,
        arg_min(
            {what: compared.what, field: compared.field, mode: compared.mode},
            (difference_rank(compared.what), compared.mode <> 'one-shot', compared.mode)
        ) as difference,
    from compared
    inner join front_ends
        on compared.engine = front_ends.engine and compared.engine_version = front_ends.engine_version
    where not compared.agrees
    group by compared.engine, compared.engine_version, compared.checkpoint, compared.kind, compared.case_id,
        compared.encoder, compared.given
),

per_release as (
    select
        engine,
        checkpoint,
        kind,
        difference.what as what,
        difference.field as field,
        difference.mode <> 'one-shot' as chunked,
        engine_version,
        release_order,
        pinned,
        count(distinct case_id) as cases,
        arg_min(
            {case_id: case_id, encoder: encoder, given: given, mode: difference.mode},
            (case_id, encoder, given, difference.mode)
        ) as example,
    from differing
    group by engine, checkpoint, kind, what, field, chunked, engine_version, release_order, pinned
),

grouped as (
    select
        engine,
        checkpoint,
        kind,
        what,
        field,
        chunked,
        bool_or(pinned) as is_open,
        arg_min(engine_version, release_order) as first_version,
        arg_max(engine_version, release_order) as last_version,
        max(release_order) - min(release_order) + 1 as age,
        arg_max(cases, release_order) as cases,
        arg_max(example, release_order) as example,
    from per_release
    group by engine, checkpoint, kind, what, field, chunked
),

-- cases of what is not seen at the pinned release, and those of them the pinned release was asked
no_more as (
    select
        grouped.engine,
        grouped.checkpoint,
        grouped.kind,
        grouped.what,
        grouped.field,
        grouped.chunked,
        differing.case_id,
    from grouped
    inner join differing
        on grouped.engine = differing.engine
        and grouped.last_version = differing.engine_version
        and grouped.checkpoint = differing.checkpoint
        and grouped.kind = differing.kind
        and grouped.what = differing.difference.what
        and grouped.field is not distinct from differing.difference.field
        and grouped.chunked = (differing.difference.mode <> 'one-shot')
    where not grouped.is_open
),

asked_again as (
    select evidence.engine, evidence.checkpoint, evidence.kind, evidence.case_id
    from evidence
    inner join front_ends
        on evidence.engine = front_ends.engine and evidence.engine_version = front_ends.engine_version
    where front_ends.pinned and evidence.mode = 'one-shot'
),

unmeasured as (
    select distinct engine, checkpoint, kind, what, field, chunked
    from no_more
    anti join asked_again
        on no_more.engine = asked_again.engine
        and no_more.checkpoint = asked_again.checkpoint
        and no_more.kind = asked_again.kind
        and no_more.case_id = asked_again.case_id
)

select
    grouped.engine || ':' || grouped.what || ':' || grouped.checkpoint as fingerprint,
    grouped.engine,
    grouped.checkpoint,
    grouped.kind,
    grouped.what,
    grouped.field,
    grouped.chunked,
    case
        when grouped.is_open then 'open'
        when unmeasured.engine is null then 'gone'
        else 'unmeasured'
    end as status,
    grouped.first_version,
    grouped.last_version,
    grouped.age,
    grouped.cases,
    grouped.example.case_id as example,
    grouped.example.encoder as encoder,
    grouped.example.given as given,
    grouped.example.mode as mode,
from grouped
inner join scope on grouped.checkpoint = scope.checkpoint
left join unmeasured
    on grouped.engine = unmeasured.engine
    and grouped.checkpoint = unmeasured.checkpoint
    and grouped.kind = unmeasured.kind
    and grouped.what = unmeasured.what
    and grouped.field is not distinct from unmeasured.field
    and grouped.chunked = unmeasured.chunked
order by scope.place, grouped.kind, grouped.engine, difference_rank(grouped.what), grouped.chunked, grouped.field
