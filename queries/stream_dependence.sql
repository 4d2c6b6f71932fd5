-- One row per gateway, checkpoint and way in which a stream says something else than the same gateway says of the same
-- output at once. Of that no truth has to be known: disputed and malformed outputs are in it too. what differs first; a
-- refusal of one of the two is rejected. standing is that of the cases, respelled the same values in other bytes. plans are
-- the chunk plans of which at least one replay shows it; what was not measured shows nothing.
with

differing as (
    select
        whole.target,
        whole.checkpoint,
        whole.case_id,
        stream.plan,
        if(difference(whole, stream) = 'same', 'respelled', difference(whole, stream)) as what,
        message_field(whole, stream) as field,
        verdict.standing,
    from observed as whole
    inner join observed as stream
        on whole.target = stream.target
        and whole.checkpoint = stream.checkpoint
        and whole.kind = stream.kind
        and whole.case_id = stream.case_id
        and whole.given is not distinct from stream.given
    inner join verdict
        on stream.target = verdict.target
        and stream.checkpoint = verdict.checkpoint
        and stream.kind = verdict.kind
        and stream.case_id = verdict.case_id
        and verdict.mode = 'stream'
        and stream.plan is not distinct from verdict.plan
        and stream.given is not distinct from verdict.given
    where not whole.streamed and stream.streamed
        and (difference(whole, stream) <> 'same' or is_respelled(whole, stream))
)

select
    differing.target,
    differing.checkpoint,
    differing.standing,
    differing.what,
    differing.field,
    count(distinct differing.plan) as plans,
    count(distinct differing.case_id) as cases,
    count(*) as replays,
    min((differing.case_id, differing.plan))[1] as example,
    min((differing.case_id, differing.plan))[2] as example_plan,
from differing
left join targets on differing.target = targets.target
left join scope on differing.checkpoint = scope.checkpoint
group by targets.gateway, targets.release_order, scope.place, differing.target, differing.checkpoint, differing.standing,
    differing.what, differing.field
order by targets.gateway, targets.release_order, differing.target, scope.place nulls last, differing.checkpoint,
    differing.standing, difference_rank(differing.what) nulls last, differing.field
