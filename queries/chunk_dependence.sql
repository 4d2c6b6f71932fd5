-- One row per release, checkpoint and way in which an engine's answer depends on how the output is cut into chunks: what
-- differs first from its own answer in one piece. respelled: the same values, other spelling of the arguments. plans are
-- the chunk plans of which at least one case shows it; a plan that could not be measured shows nothing.
with

differing as (
    select
        whole.checkpoint,
        whole.kind,
        whole.case_id,
        whole.engine,
        whole.engine_version,
        chunked.mode as plan,
        if(difference(whole, chunked) = 'same', 'respelled', difference(whole, chunked)) as what,
        message_field(whole, chunked) as field,
    from evidence as whole
    inner join evidence as chunked
        on whole.checkpoint = chunked.checkpoint
        and whole.kind = chunked.kind
        and whole.case_id = chunked.case_id
        and whole.engine = chunked.engine
        and whole.engine_version = chunked.engine_version
        and coalesce(whole.given, ''::blob) = coalesce(chunked.given, ''::blob)
    where whole.mode = 'one-shot' and chunked.mode <> 'one-shot'
        and (difference(whole, chunked) <> 'same' or is_respelled(whole, chunked))
)

select
    differing.engine,
    differing.engine_version,
    differing.checkpoint,
    differing.kind,
    differing.what,
    differing.field,
    count(distinct differing.plan) as plans,
    count(distinct differing.case_id) as cases,
    min((differing.case_id, differing.plan))[1] as example,
    min((differing.case_id, differing.plan))[2] as example_plan,
from differing
inner join scope on differing.checkpoint = scope.checkpoint
inner join engines on differing.engine = engines.engine and differing.engine_version = engines.engine_version
group by engines.release_order, scope.place, differing.engine, differing.engine_version, differing.checkpoint,
    differing.kind, differing.what, differing.field
order by differing.engine, engines.release_order, scope.place, differing.kind,
    difference_rank(differing.what) nulls last, differing.field
