-- One row per way in which what a gateway does changed from one release to the next, of the same replay (checkpoint,
-- case, mode, plan, output), by layer. move:
--   fixed         was wrong, is right
--   broke         was right, is wrong
--   moved         wrong in both, and in another way; layer is where the newer one is wrong
--   same          wrong in both, in the same way
--   changed       no truth to be wrong against (disputed, policy, no reference): the answer is another one
--   appeared, disappeared   not asked, or not measured, in one of them: no conclusion
-- What is right in both, or the same without a truth, has no row. A known difference is wrong all the same.
with

steps as (
    select older.gateway, older.target as before, newer.target as after, newer.release_order
    from targets as older
    inner join targets as newer on older.gateway = newer.gateway and older.release_order + 1 = newer.release_order
),

-- with what tells two answers apart
answers as (
    select
        verdict.*,
        observed.answer,
        observed.value,
        observed.text,
        verdict.first_layer is not null as wrong,
        verdict.gate <> 'no_verdict' and observed.answer is not null as measured,
        verdict.verdict in ('match', 'engine_defect', 'engine_defect_waived', 'known_but_matches') as fine,
    from verdict
    inner join observed
        on verdict.target = observed.target
        and verdict.checkpoint = observed.checkpoint
        and verdict.kind = observed.kind
        and verdict.case_id = observed.case_id
        and verdict.mode = if(observed.streamed, 'stream', 'full')
        and verdict.plan is not distinct from observed.plan
        and verdict.given is not distinct from observed.given
),

older as (
    select answers.*, steps.gateway, steps.before, steps.after, steps.release_order
    from answers
    inner join steps on answers.target = steps.before
    where answers.measured
),

newer as (
    select answers.*, steps.gateway, steps.before, steps.after, steps.release_order
    from answers
    inner join steps on answers.target = steps.after
    where answers.measured
),

moves as (
    select
        coalesce(older.gateway, newer.gateway) as gateway,
        coalesce(older.before, newer.before) as before,
        coalesce(older.after, newer.after) as after,
        coalesce(older.release_order, newer.release_order) as release_order,
        coalesce(older.checkpoint, newer.checkpoint) as checkpoint,
        coalesce(older.kind, newer.kind) as kind,
        coalesce(older.case_id, newer.case_id) as case_id,
        case
            when older.case_id is null then 'appeared'
            when newer.case_id is null then 'disappeared'
            when older.wrong and newer.fine then 'fixed'
            when older.fine and newer.wrong then 'broke'
            when older.wrong and newer.wrong then if(
                (older.what, older.field, older.first_layer, older.code)
                is not distinct from (newer.what, newer.field, newer.first_layer, newer.code)
                and coalesce(is_said(older, newer), true),
                'same',
                'moved'
            )
            when older.fine and newer.fine then 'right'
            when is_said(older, newer) then 'right'
            else 'changed'
        end as move,
        if(move = 'fixed', older.first_layer, newer.first_layer) as layer,
        if(move = 'fixed', older.what, if(newer.wrong, newer.what, null)) as what,
        if(move = 'fixed', older.field, if(newer.wrong, newer.field, null)) as field,
    from older
    full join newer
        on older.gateway = newer.gateway
        and older.after = newer.after
        and older.checkpoint = newer.checkpoint
        and older.kind = newer.kind
        and older.case_id = newer.case_id
        and older.mode = newer.mode
        and coalesce(older.plan, '') = coalesce(newer.plan, '')
        and coalesce(older.given, ''::blob) = coalesce(newer.given, ''::blob)
)

select
    moves.gateway,
    moves.before,
    moves.after,
    moves.checkpoint,
    moves.kind,
    moves.move,
    moves.layer,
    moves.what,
    moves.field,
    count(distinct moves.case_id) as cases,
    count(*) as replays,
    min(moves.case_id) as example,
from moves
left join scope on moves.checkpoint = scope.checkpoint
where moves.move <> 'right'
group by moves.release_order, scope.place, moves.gateway, moves.before, moves.after, moves.checkpoint, moves.kind,
    moves.move, moves.layer, moves.what, moves.field
order by moves.gateway, moves.release_order, scope.place nulls last, moves.checkpoint, moves.kind,
    list_position(['broke', 'moved', 'fixed', 'changed', 'same', 'disappeared', 'appeared'], moves.move),
    layer_rank(moves.layer), moves.what, moves.field
