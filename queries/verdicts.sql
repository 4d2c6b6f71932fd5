-- One row per gateway, checkpoint, kind, verdict, its reason and layer: replays, and the cases they are of.
select
    verdict.target,
    verdict.checkpoint,
    verdict.kind,
    verdict.verdict,
    verdict.reason,
    verdict.gate,
    verdict.first_layer,
    count(*) as replays,
    count(distinct verdict.case_id) as cases,
from verdict
left join targets on verdict.target = targets.target
left join scope on verdict.checkpoint = scope.checkpoint
group by targets.gateway, targets.release_order, scope.place, verdict.target, verdict.checkpoint, verdict.kind,
    verdict.verdict, verdict.reason, verdict.gate, verdict.first_layer
order by targets.gateway, targets.release_order, verdict.target, scope.place nulls last, verdict.checkpoint, verdict.kind,
    verdict_rank(verdict.verdict), verdict.reason, layer_rank(verdict.first_layer)
