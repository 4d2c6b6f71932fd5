-- One row per gateway, checkpoint and kind: how many cases there are, how many were sent, and how many were judged; of
-- the others why not. Each case counts once, and the columns from judged on add up to cases. A case is judged when all
-- its replays were measured and one of them was held against a truth, a policy or a split of engines; replays are rows.
-- not_sent: outside the share drawn or the selection, dependent on the clock, or of a kind that cannot be observed.
with

replayed as (
    select
        target,
        checkpoint,
        kind,
        case_id,
        count(*) as replays,
        bool_or(verdict = 'measurement_failed') as failed,
        bool_or(verdict = 'missing') as missing,
        bool_or(gate in ('pass', 'fail')) as judged,
        min(coalesce(if(verdict = 'unverified', reason, null), verdict)) filter (where gate = 'none') as why,
    from verdict
    group by target, checkpoint, kind, case_id
),

-- whatever is asked of these has no verdict
hopeless as (
    select checkpoint, kind, case_id, bool_and(state = 'not_applicable') as not_applicable
    from standing
    group by checkpoint, kind, case_id
    having not_applicable
),

placed as (
    select
        targets.target,
        scope.checkpoint,
        cases.kind,
        replayed.case_id is not null as sent,
        coalesce(replayed.replays, 0) as replays,
        case
            when replayed.failed then 'measurement_failed'
            when replayed.missing then 'missing'
            when replayed.judged then 'judged'
            when replayed.why is not null then replayed.why
            when hopeless.case_id is not null then 'not_applicable'
            else 'not_sent'
        end as place,
    from targets
    cross join scope
    cross join cases
    left join replayed
        on targets.target = replayed.target
        and scope.checkpoint = replayed.checkpoint
        and cases.kind = replayed.kind
        and cases.case_id = replayed.case_id
    left join hopeless
        on scope.checkpoint = hopeless.checkpoint and cases.kind = hopeless.kind and cases.case_id = hopeless.case_id
)

select
    placed.target,
    placed.checkpoint,
    placed.kind,
    count(*) as cases,
    count(*) filter (where placed.sent) as sent,
    sum(placed.replays)::bigint as replays,
    count(*) filter (where placed.place = 'judged') as judged,
    count(*) filter (where placed.place = 'not_sent') as not_sent,
    count(*) filter (where placed.place = 'measurement_failed') as measurement_failed,
    count(*) filter (where placed.place = 'missing') as missing,
    count(*) filter (where placed.place = 'not_applicable') as not_applicable,
    count(*) filter (where placed.place = 'disputed') as disputed,
    count(*) filter (where placed.place = 'no_reference') as no_reference,
    count(*) filter (where placed.place = 'other_output') as other_output,
    count(*) filter (where placed.place = 'not_observable') as not_observable,
from placed
inner join targets on placed.target = targets.target
inner join scope on placed.checkpoint = scope.checkpoint
group by targets.gateway, targets.release_order, scope.place, placed.target, placed.checkpoint, placed.kind
order by targets.gateway, targets.release_order, placed.target, scope.place, placed.kind
