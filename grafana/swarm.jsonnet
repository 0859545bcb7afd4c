local lib = import 'lib.libsonnet';

local chosen = 'namespace=~"$namespace", name=~"$name"';
local swarm(name, by='', more='') =
  lib.max('namespace, name' + by, 'swarm_' + name, lib.both(chosen, more));
local perHour(by, name) =
  lib.increase('cluster, namespace, name, ' + by, 'traffic_operator_swarm_' + name, chosen, '1h');
// A line at zero for each Swarm.
local orNone(expr, label, text) =
  lib.orNone(expr, label, text, '0 * ' + swarm('epoch'), 'cluster, namespace, name');

local acknowledged = swarm('worker_acked_epoch', ', worker');
local behind =
  lib.top('%s - on (cluster, namespace, name) group_right () %s' % [swarm('epoch'), acknowledged]);
local ofWorst(expr) = '%s and on (cluster, namespace, name, worker) %s' % [expr, behind];

local object = '{{cluster}} {{namespace}}/{{name}}';

lib.dashboard(
  'swarm',
  'Which Swarms have streams with two workers or none, and which workers hold them up; below, handovers and workers.',
  'traffic_operator_swarm_epoch',
  [
    lib.choice('namespace', 'Namespace', lib.series('traffic_operator_swarm_epoch'), 'namespace'),
    lib.choice('name', 'Swarm', lib.series('traffic_operator_swarm_epoch', 'namespace=~"$namespace"'), 'name'),
    lib.topOf('worker'),
  ],
  [
    lib.row('Swarms and workers now', folded=false, panels=[
      lib.swarms(chosen, [], h=7),
      lib.table(
        'Workers with the oldest list',
        'Workers whose acknowledged version is furthest behind the version of the file. That alone is no fault, because a list may not have changed; if the Swarm has workers behind, these are the first to look at.',
        [
          lib.label('worker', 'Worker'),
          lib.value('Acknowledged', ofWorst(acknowledged)),
          lib.value(
            'Version of the file',
            ofWorst('%s * 0 + on (cluster, namespace, name) group_left () %s' % [acknowledged, swarm('epoch')])
          ),
          lib.value('Behind by', behind),
          lib.label('name', 'Swarm'),
          lib.label('namespace', 'Namespace'),
          lib.label('cluster', 'Cluster'),
        ],
        ['Behind by'],
        'No worker has acknowledged a list', w=16
      ),
      lib.alerts(
        'Swarm alerts',
        'Firing alerts about the chosen Swarms: critical ones need action now, warnings soon. Each alert has a runbook.',
        'Swarm.*', ', ' + chosen, w=8, h=8
      ),
    ]),
    lib.row('Handover', folded=false, panels=[
      lib.lines(
        'Streams by state',
        'Streams by state. A moving stream is releasing, then free, then owned again; if stranded, unassigned or undecided stays above 0, no worker runs those streams.',
        'none',
        [['{{state}}', 'sum by (state) (%s)' % swarm('streams', ', state')]],
        w=12
      ),
      lib.lines(
        'Oldest release',
        'Time for which a worker has not confirmed that it stopped a stream. Above 300 s SwarmStuckReleasing fires: look at the pod of that worker, because time alone frees no stream.',
        's',
        [[object, swarm('oldest_release_seconds')]],
        w=12, limit=300
      ),
      lib.lines(
        'Time without a worker',
        'Time from the release of a stream by its old worker to the acknowledgement by its new one: median and 99th percentile. If it rises, the new workers read or confirm their lists late.',
        's',
        [
          [object + ' ' + q[0], lib.quantile(q[1], 'cluster, namespace, name, ', 'traffic_operator_swarm_stream_unowned_seconds', chosen)]
          for q in [['p50', '0.5'], ['p99', '0.99']]
        ],
        w=12
      ),
      lib.lines(
        'Moves by reason',
        'Streams that left a worker in the last hour, by reason. Many moves without a change of the spec mean that workers come and go, or that weights keep changing.',
        'none',
        [[object + ' {{reason}}', orNone(perHour('reason', 'moves_total'), 'reason', 'no move')]],
        w=12
      ),
    ]),
    lib.row('Workers', [
      lib.lines(
        'Workers by state',
        'Wanted workers, those that are ready, that have not acknowledged their list (behind), that answer no more (unresponsive), and whose pod does not sign. If workers are behind, look at their logs.',
        'none',
        [[object + ' {{state}}', swarm('workers', ', state')]],
        w=12
      ),
      lib.lines(
        'Refreshes',
        'Refreshes of the pods of workers in the last hour: evicted, reloaded, and refused by a PodDisruptionBudget. If evictions are refused, workers keep their old list.',
        'none',
        [[object + ' {{action}}', orNone(perHour('action', 'refreshes_total'), 'action', 'no refresh')]],
        w=12
      ),
    ]),
  ]
)
