local lib = import 'lib.libsonnet';

local chosen = 'name=~"$name"';
local set(name, by='', more='') = lib.max('name' + by, 'routereflector_' + name, lib.both(chosen, more));
local perHour(by, name) =
  lib.increase('cluster, name' + by, 'traffic_operator_routereflector_' + name, chosen, '1h');

local desired = set('desired', ', zone');
// A zone without any reflector has no series of slots.
local slots(state) = '(%s or 0 * %s)' % [set('slots', ', zone', 'state="%s"' % state), desired];

lib.dashboard(
  'routereflector',
  'Which sets miss routes, and in which zones reflectors are missing; below, changes and sessions.',
  'traffic_operator_routereflector_mesh',
  [lib.choice('name', 'RouteReflectorSet', lib.series('traffic_operator_routereflector_mesh'), 'name')],
  [
    lib.row('Routes and reflectors now', folded=false, panels=[
      lib.reflectorSets(chosen, [], h=7),
      lib.table(
        'Reflectors by zone',
        'Zones with fewer serving reflectors than desired first. If a reflector is not ready, look at its node; if it is leaving, another node is about to replace it.',
        [
          lib.label('zone', 'Zone'),
          lib.value('Missing', '%s - %s' % [desired, slots('serving')], steps=lib.above('red')),
          lib.value('Serving', slots('serving')),
          lib.value('Desired', desired),
          lib.value('Not ready', slots('notready'), steps=lib.above('orange')),
          lib.value('Leaving', slots('leaving')),
          lib.label('name', 'RouteReflectorSet'),
          lib.label('cluster', 'Cluster'),
        ],
        ['Missing', 'Not ready'],
        'No reflector is desired', w=16
      ),
      lib.alerts(
        'Reflector alerts',
        'Firing alerts about the chosen RouteReflectorSets: critical ones need action now, warnings soon. Each alert has a runbook.',
        'RouteReflector.*', ', ' + chosen, w=8, h=8
      ),
      lib.lines(
        'Pairs without a route',
        'Ordered pairs of nodes without a route, by the configured sessions: now (none), and without the most important reflector (worst). Above 0 now is an outage; above 0 for worst means that there is no redundancy.',
        'none',
        [['{{cluster}} {{name}} down: {{down}}', set('routes_missing', ', down')]],
        w=12
      ),
      lib.lines(
        'Reflectors by zone and state',
        'Reflectors that serve, are not ready or are leaving, and their desired number. If fewer serve than desired for minutes, look at the nodes of the zone.',
        'none',
        [
          ['{{cluster}} {{name}} {{zone}} {{state}}', set('slots', ', zone, state')],
          ['{{cluster}} {{name}} desired', 'sum by (cluster, name) (%s)' % desired, 'limit'],
        ],
        w=12
      ),
    ]),
    lib.row('Changes', [
      lib.lines(
        'Waiting for sessions',
        'Time for which the next step has waited for its gate. Above 600 s, look at the BGP sessions of the nodes that the condition Converged names.',
        's',
        [['{{cluster}} {{name}}', set('waiting_seconds')]],
        limit=600
      ),
      lib.lines(
        'Steps taken',
        'Steps in an hour, by kind and result. Each promotion, renumbering and demotion interrupts the routes of its own node for about two seconds; failed steps are tried again.',
        'none',
        [[
          '{{cluster}} {{name}} {{kind}} {{result}}',
          lib.orNone(
            perHour(', kind, result', 'transitions_total'), 'kind', base='0 * ' + set('mesh'), on='cluster, name'
          ),
        ]]
      ),
      lib.lines(
        'Refused plans',
        'Plans and steps in an hour that were refused, because they would have lost routes or filled tables. Above 0, the condition Converged has the reason.',
        'none',
        [['{{cluster}} {{name}}', perHour('', 'plan_oracle_failures_total')]]
      ),
    ]),
    lib.row('Sessions and BGPPeers', [
      lib.lines(
        'Clients at risk',
        'Ready nodes with fewer than two established sessions, and without any; empty while no sessions are counted. Above 0, look at BIRD on these nodes.',
        'none',
        [
          ['{{cluster}} {{name}}', set('clients_at_risk')],
          ['{{cluster}} {{name}}, without any', set('clients_without_sessions')],
        ]
      ),
      lib.lines(
        'Mesh by set',
        '1 while the node-to-node mesh is on; 1 while reflectors and mesh retire, and afterwards; and 1 while no session carries a route to pods, so that there is nothing to reflect.',
        'none',
        [
          ['{{cluster}} {{name}}', set('mesh')],
          ['{{cluster}} {{name}} retires', set('retiring')],
          ['{{cluster}} {{name}} has nothing to reflect', set('idle')],
        ]
      ),
      lib.lines(
        'BGPPeers of others',
        'BGPPeers of other owners, which the operator takes into account, and objects that it cannot read. If it cannot read one, numbers of missing routes are absent; look at that object.',
        'none',
        [
          ['{{cluster}} {{name}}', set('foreign_bgppeers')],
          ['{{cluster}} {{name}} cannot be read', set('unreadable_objects'), 'warning'],
        ]
      ),
    ]),
  ]
)
