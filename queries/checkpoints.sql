-- One row per pinned checkpoint, in scope or not: whose recording serves it, how its files are proved, what is missing.
select
    manifests.checkpoint,
    manifests.model,
    manifests.revision,
    manifests.tier,
    manifests.license,
    manifests.group_slug,
    manifests.in_scope,
    manifests.status,
    manifests.files,
    manifests.identical,
    manifests.derived,
    manifests.unproved,
    manifests.only_on_hub,
    array_to_string(manifests.missing, ' ') as missing,
    array_to_string(manifests.unreached, ' ') as unreached,
from manifests
left join scope on manifests.checkpoint = scope.checkpoint
order by scope.place nulls last, manifests.status, manifests.checkpoint
