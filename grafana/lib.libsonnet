// What the dashboards share: queries, panels, and the tables that the overview and the dashboard of a kind both show.
// Rows place their panels from left to right.
local datasource = { type: 'prometheus', uid: '${datasource}' };

// File and title, in the order of the links.
local boards = [
  ['overview', 'Overview'],
  ['trafficwatch', 'TrafficWatch'],
  ['networkprober', 'NetworkProber'],
  ['swarm', 'Swarm'],
  ['routereflector', 'RouteReflectorSet'],
  ['operator', 'Operator'],
];
local uid(board) = 'traffic-operator-' + board;

// A link keeps data source and cluster, and the time if it comes from a cell of a table.
local kept = '${datasource:queryparam}&${cluster:queryparam}';

local optional(key, value) = if value == null then {} else { [key]: value };
local override(matcher, options, properties) = {
  matcher: { id: matcher, options: options },
  properties: [{ id: id, value: properties[id] } for id in std.objectFields(properties)],
};
local thresholds(steps) = {
  mode: 'absolute',
  steps: [{ color: step[0], value: step[1] } for step in steps],
};
local refId(i) = std.char(std.codepoint('A') + i);
local target(i, expr) = { refId: refId(i), datasource: datasource, editorMode: 'code', expr: expr };
local now = { instant: true, range: false };

local panel(type, title, description, unit, empty) = {
  type: type,
  title: title,
  description: description,
  datasource: datasource,
  fieldConfig: { defaults: { unit: unit } + optional('noValue', empty), overrides: [] },
};
local at(x, y, w, h) = { gridPos: { x: x, y: y, w: w, h: h } };
// Whole numbers above zero have this color.
local above(color, from=1) = [['text', null], [color, from]];

{
  above:: above,

  // --- Queries

  // Two lists of matchers.
  both(some, others):: std.join(', ', [text for text in [some, others] if text != '']),

  // `more` are further matchers, and `range` is such as [5m].
  series(name, more='', range='')::
    name + '{' + $.both('cluster=~"$cluster"', more) + '}' + range,

  // Only the leader exports decisions. For the time of a scrape, two replicas do: the pod is aggregated away.
  max(by, name, more='')::
    'max by (cluster, %s) (%s)' % [by, $.series('traffic_operator_' + name, more)],

  increase(by, name, more='', range='5m')::
    'sum by (%s) (increase(%s))' % [by, $.series(name, more, '[%s]' % range)],
  rate(by, name, more='')::
    'sum by (%s) (rate(%s))' % [by, $.series(name, more, '[$__rate_interval]')],
  quantile(q, by, name, more='')::
    'histogram_quantile(%s, %s)' % [q, $.rate(by + 'le', name + '_bucket', more)],

  // A line at zero for what did not happen yet.
  orNone(expr, label, text='none', base='vector(0)', on='')::
    '%s or on (%s) label_replace(%s, "%s", "%s", "", "")' % [expr, on, base, label, text],

  top(expr):: 'topk($top, %s)' % expr,

  // --- Panels

  // Each line is a legend, a query, and perhaps how it is drawn: 'limit' or 'warning'.
  lines(title, description, unit, lines, w=8, h=8, limit=null, empty=null)::
    local style = {
      limit: {
        color: { mode: 'fixed', fixedColor: 'red' },
        'custom.fillOpacity': 0,
        'custom.lineStyle': { fill: 'dash', dash: [10, 10] },
      },
      warning: { color: { mode: 'fixed', fixedColor: 'orange' } },
    };
    // Of many lines, the legend has the values.
    local many = std.length(std.findSubstr('$top', lines[0][1])) > 0;
    panel('timeseries', title, description, unit, empty) + {
      size:: [w, h],
      fieldConfig+: {
        defaults+: {
          min: 0,
          custom: { lineWidth: 1, fillOpacity: 5, showPoints: 'never', spanNulls: false }
                  + if limit == null then {} else { thresholdsStyle: { mode: 'line' } },
        } + if limit == null then {} else { thresholds: thresholds([['transparent', null], ['red', limit]]) },
        overrides: [
          override('byFrameRefID', refId(i), style[lines[i][2]])
          for i in std.range(0, std.length(lines) - 1)
          if std.length(lines[i]) > 2
        ],
      },
      options: {
        legend: { displayMode: 'list', placement: 'bottom', showLegend: true }
                + if many then { displayMode: 'table', calcs: ['lastNotNull', 'max'] } else {},
        tooltip: { mode: 'multi', sort: 'desc' },
      },
      targets: [
        target(i, lines[i][1]) + { legendFormat: lines[i][0], instant: false, range: true }
        for i in std.range(0, std.length(lines) - 1)
      ],
    },

  // Each value is a legend, a query, and perhaps its colors.
  stat(title, description, unit, values, steps=[['text', null]], w=6, h=4, empty=null)::
    panel('stat', title, description, unit, empty) + {
      size:: [w, h],
      fieldConfig+: {
        defaults+: { color: { mode: 'thresholds' }, thresholds: thresholds(steps) },
        overrides: [
          override('byName', value[0], { thresholds: thresholds(value[2]) })
          for value in values
          if std.length(value) > 2
        ],
      },
      options: {
        colorMode: 'value',
        graphMode: 'none',
        textMode: if std.length(values) > 1 then 'value_and_name' else 'value',
        orientation: 'vertical',
        reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false },
      },
      targets: [
        target(i, values[i][1]) + { legendFormat: values[i][0] } + now
        for i in std.range(0, std.length(values) - 1)
      ],
    },

  alerts(title, description, names, more='', w=6, h=4)::
    local firing(severity) =
      'count(%s) or vector(0)' % $.series(
        'ALERTS', 'alertname=~"%s"%s, alertstate="firing", severity="%s"' % [names, more, severity]
      );
    $.stat(title, description, 'none', [
      ['critical', firing('critical'), [['green', null], ['red', 1]]],
      ['warning', firing('warning'), [['green', null], ['orange', 1]]],
    ], w=w, h=h),

  // A column of a table is a label or a query. `properties` are those of its cells.
  label(name, title, links=[]):: {
    field: name,
    title: title,
    properties: if links == [] then {} else { links: links },
  },
  value(title, expr, unit=null, decimals=null, steps=null, mappings=null):: {
    expr: expr,
    title: title,
    properties:
      optional('unit', unit) + optional('decimals', decimals) + optional('mappings', mappings)
      + (if steps == null then {} else { thresholds: thresholds(steps) })
      + if steps == null && mappings == null then {} else { 'custom.cellOptions': { type: 'color-text' } },
  },

  // `worst` are the columns to sort by. Labels in `hidden` have no column.
  table(title, description, columns, worst, empty, w=24, h=8, hidden=[])::
    local queries = [column.expr for column in columns if 'expr' in column];
    local field(column) =
      if 'field' in column then column.field
      else if std.length(queries) == 1 then 'Value'
      else 'Value #' + refId(std.find(column.expr, queries)[0]);
    panel('table', title, description, 'none', empty) + {
      size:: [w, h],
      fieldConfig+: {
        overrides: [
          override('byName', column.title, column.properties)
          for column in columns
          if column.properties != {}
        ],
      },
      options: { showHeader: true, sortBy: [{ displayName: name, desc: true } for name in worst] },
      targets: [
        target(i, queries[i]) + { format: 'table' } + now
        for i in std.range(0, std.length(queries) - 1)
      ],
      transformations: [
        { id: 'merge', options: {} },
        {
          id: 'organize',
          options: {
            excludeByName: { [name]: true for name in ['Time'] + hidden },
            indexByName: { [field(columns[i])]: i for i in std.range(0, std.length(columns) - 1) },
            renameByName: { [field(column)]: column.title for column in columns },
          },
        },
      ],
    },

  // One cell for each pair: rows are sources, columns are destinations.
  matrix(title, description, expr, from, to, unit, steps, w=12, h=10)::
    panel('table', title, description, unit, null) + {
      size:: [w, h],
      fieldConfig+: {
        defaults+: {
          thresholds: thresholds(steps),
          color: { mode: 'thresholds' },
          custom: { cellOptions: { type: 'color-background' }, minWidth: 60 },
        },
      },
      options: { showHeader: true },
      targets: [target(0, expr) + { format: 'table' } + now],
      transformations: [{
        id: 'groupingToMatrix',
        options: { rowField: from, columnField: to, valueField: 'Value', emptyValue: 'null' },
      }],
    },

  // The states of a number over time: [[number, text, color], …].
  timeline(title, description, states, legend, expr, empty, w=24, h=8)::
    panel('state-timeline', title, description, 'none', empty) + {
      size:: [w, h],
      fieldConfig+: {
        defaults+: {
          mappings: $.mappings(states),
          color: { mode: 'thresholds' },
          thresholds: thresholds([['green', null]]),
          custom: { fillOpacity: 70, lineWidth: 0 },
        },
      },
      options: {
        mergeValues: true,
        showValue: 'never',
        alignValue: 'left',
        rowHeight: 0.8,
        legend: { displayMode: 'list', placement: 'bottom', showLegend: true },
        tooltip: { mode: 'single' },
      },
      targets: [target(0, expr) + { legendFormat: legend, instant: false, range: true }],
    },

  mappings(states):: [{
    type: 'value',
    options: {
      [std.toString(states[i][0])]: { index: i, text: states[i][1], color: states[i][2] }
      for i in std.range(0, std.length(states) - 1)
    },
  }],

  // --- Links from a table to the dashboard of a kind

  to(board, title, variables):: {
    title: title,
    url: '/d/%s?%s&%s&${__url_time_range}' % [uid(board), variables, kept],
    targetBlank: false,
  },

  // --- Tables on two dashboards: what is worst, and against which limit

  // Nodes that a TrafficWatch does not find fit. `more` selects TrafficWatches and nodes.
  unfit(more, links, w=24, h=8)::
    local by = 'namespace, name, node';
    local measure = by + ', criterion';
    local of(name, by, also='') =
      $.max(by, 'trafficwatch_' + name, $.both(more, also));
    local whole = by + ', state, criterion, reason, device';
    local state(name) = of('node_info', whole, 'state="%s"' % name);
    // The measure that explains the state.
    local explains(expr) =
      '%s and on (cluster, %s) %s' % [expr, measure, of('node_info', measure)];
    $.table(
      'Unfit and unknown nodes',
      'Nodes that are not fit for a TrafficWatch, with value and threshold of the measure that explains it (percent of the link, bits per second, or the unit of the query). Suppressed nodes are above the threshold and not marked, because the limit of unfit nodes is reached; if many are Unknown, look at the reason why they cannot be measured.',
      [
        $.value(
          'State',
          'label_join(3 * %s or 2 * %s or %s, "watch", "/", "namespace", "name")'
          % [state('Unfit'), state('Suppressed'), state('Unknown')],
          mappings=$.mappings([[3, 'Unfit', 'red'], [2, 'Suppressed', 'orange'], [1, 'Unknown', 'blue']])
        ),
        $.label('node', 'Node', links),
        $.value('Value', explains(of('node_value', measure)), 'sishort'),
        $.value(
          'Threshold',
          'label_join(%s, "measure", " ", "criterion", "unit")'
          % explains(of('node_threshold', measure + ', unit')),
          'sishort'
        ),
        $.value(
          'Of the threshold',
          explains('(%s / %s)' % [of('node_value', measure), of('node_threshold', measure)]),
          'percentunit', 0, [['text', null], ['red', 1]]
        ),
        $.label('measure', 'Measure'),
        $.label('device', 'Link'),
        $.value(
          'For', 'time() - ' + of('node_state_since_timestamp_seconds', by), 's', 0
        ),
        $.label('watch', 'TrafficWatch'),
        $.label('cluster', 'Cluster'),
        $.label('reason', 'Reason'),
      ],
      ['State', 'Of the threshold'],
      'All nodes are fit.', w, h,
      hidden=['state', 'namespace', 'name', 'criterion', 'unit'],
    ),

  // The limits of the shipped alerts.
  lossLimit:: 0.05,
  rttLimit:: 0.1,

  // Nodes to blame for loss or latency. `more` selects NetworkProbers and nodes.
  blamed(more, limit, links, w=24, h=8)::
    local of(name) =
      'max by (cluster, prober, node) (%s)' % $.series('netprober:node_' + name, more);
    local loss = of('loss:ratio5m');
    local rtt = of('rtt_seconds:p99_5m');
    local used = '(%s / 0.05 > %s / 0.1 or %s / 0.1 or %s / 0.05)' % [loss, rtt, rtt, loss];
    local worst = 'topk(%s, %s)' % [limit, used];
    local among(expr) = '%s and on (cluster, prober, node) %s' % [expr, worst];
    $.table(
      'Nodes by loss and round-trip time',
      'Nodes that are to blame for loss or latency over 5 minutes, with the limits of the alerts (that of the round-trip time is lower if spec.timeout is below 200 ms). Above 100 %, look at the paths of the node.',
      [
        $.label('node', 'Node', links),
        $.value('Loss (limit 5 %)', among(loss), 'percentunit', 1, above('red', $.lossLimit)),
        $.value('p99 (limit 100 ms)', among(rtt), 's', null, above('red', $.rttLimit)),
        $.value('Of the limit', worst, 'percentunit', 0, above('red', 1)),
        $.label('prober', 'NetworkProber'),
        $.label('cluster', 'Cluster'),
      ],
      ['Of the limit'],
      'No node is measured', w, h,
    ),

  // Swarms with what must be zero first. `more` selects Swarms.
  swarms(more, links, w=24, h=8)::
    local swarm(name, also='', by='namespace, name') =
      $.max(by, 'swarm_' + name, $.both(more, also));
    local streams(states) =
      'sum by (cluster, namespace, name) (%s)'
      % swarm('streams', 'state=~"%s"' % states, 'namespace, name, state');
    $.table(
      'Swarms',
      'Swarms with streams that two workers run, or that no worker runs: both must be 0. Above 300 s for the oldest release, a worker does not confirm that it stopped its streams; look at the worker with the oldest list.',
      [
        $.label('name', 'Swarm', links),
        $.value('With two workers (limit 0)', swarm('duplicate_owners'), steps=above('red')),
        $.value('Without a worker (limit 0)', streams('stranded|unassigned|undecided'), steps=above('red')),
        $.value('Oldest release (limit 300 s)', swarm('oldest_release_seconds'), 's', 0, above('red', 300)),
        $.value('Workers behind', swarm('workers', 'state=~"behind|unresponsive"'), steps=above('orange')),
        $.value('Workers ready', swarm('workers', 'state="ready"')),
        $.value('Workers wanted', swarm('workers', 'state="wanted"')),
        $.value('Moving', streams('releasing|free'), steps=above('blue')),
        // Above weights.rebalanceAbove streams move.
        $.value('Heaviest worker (mean 1)', swarm('worker_load_ratio'), decimals=2),
        $.label('namespace', 'Namespace'),
        $.label('cluster', 'Cluster'),
      ],
      ['With two workers (limit 0)', 'Without a worker (limit 0)', 'Oldest release (limit 300 s)'],
      'No Swarm', w, h,
    ),

  // Sets that miss routes first. `more` selects RouteReflectorSets.
  reflectorSets(more, links, w=24, h=8)::
    local set(name, also='', by='name') =
      $.max(by, 'routereflector_' + name, $.both(more, also));
    local zones(name, also='') = 'sum by (cluster, name) (%s)' % set(name, also, 'name, zone');
    $.table(
      'RouteReflectorSets',
      'RouteReflectorSets with pairs of nodes that have no route now (an outage), or that would have none without one reflector. If fewer reflectors serve than desired, look at the zones; if a step waits longer than 600 s, at the sessions of the clients.',
      [
        $.label('name', 'RouteReflectorSet', links),
        $.value('Routes missing (limit 0)', set('routes_missing', 'down="none"'), steps=above('red')),
        $.value('Without one reflector (limit 0)', set('routes_missing', 'down="worst"'), steps=above('orange')),
        $.value('Serving', zones('slots', 'state="serving"')),
        $.value('Desired', zones('desired')),
        $.value('Clients without sessions (limit 0)', set('clients_without_sessions'), steps=above('orange')),
        $.value('Waiting (limit 600 s)', set('waiting_seconds'), 's', 0, above('orange', 600)),
        $.value('Steps left', set('steps_left')),
        $.label('cluster', 'Cluster'),
      ],
      ['Routes missing (limit 0)', 'Without one reflector (limit 0)', 'Clients without sessions (limit 0)'],
      'No RouteReflectorSet', w, h,
    ),

  // --- Variables

  // A choice among the values of a label, which is in the series as well.
  choice(name, title, series, label, more={})::
    local query = 'label_values(%s, %s)' % [series, label];
    {
      name: name,
      label: title,
      type: 'query',
      datasource: datasource,
      query: { query: query, refId: name },
      definition: query,
      refresh: 2,
      sort: 1,
      multi: true,
      includeAll: true,
      allValue: '.*',
      current: { selected: true, text: ['All'], value: ['$__all'] },
    } + more,

  // One value, not All.
  one:: { multi: false, includeAll: false, allValue:: '', current: {} },

  topOf(what):: {
    name: 'top',
    label: 'Maximum lines',
    description: 'Maximum number of lines in panels with one line for each %s.' % what,
    type: 'custom',
    query: '10,20,50,500',
    current: { selected: true, text: '20', value: '20' },
    includeAll: false,
    multi: false,
    options: [
      { selected: n == '20', text: n, value: n }
      for n in ['10', '20', '50', '500']
    ],
  },

  // --- Layout

  row(title, panels, folded=true):: { title: title, panels: panels, folded: folded },

  // `of` is a series of the clusters to choose from.
  dashboard(board, description, of, variables, rows, annotations=[])::
    local title = { [b[0]]: b[1] for b in boards }[board];
    // From left to right, and below the highest when a line is full.
    local place(panels, top) = std.foldl(
      function(done, panel)
        local w = panel.size[0];
        local full = done.x + w > 24;
        local x = if full then 0 else done.x;
        local y = if full then done.bottom else done.y;
        {
          panels: done.panels + [panel + at(x, y, w, panel.size[1])],
          x: x + w,
          y: y,
          bottom: std.max(done.bottom, y + panel.size[1]),
        },
      panels, { panels: [], x: 0, y: top, bottom: top }
    );
    local placed = std.foldl(
      function(done, row)
        local inner = place(row.panels, done.y + 1);
        local head = { type: 'row', title: row.title, collapsed: row.folded } + at(0, done.y, 24, 1);
        if row.folded then
          { panels: done.panels + [head + { panels: inner.panels }], y: done.y + 1 }
        else
          { panels: done.panels + [head] + inner.panels, y: inner.bottom },
      rows, { panels: [], y: 0 }
    ).panels;
    // Numbers in the order of the panels.
    local count(panel) = 1 + if 'panels' in panel then std.length(panel.panels) else 0;
    local numbered = std.foldl(
      function(done, panel) {
        panels: done.panels + [
          panel { id: done.next }
          + if 'panels' in panel then {
            panels: [
              panel.panels[i] { id: done.next + 1 + i }
              for i in std.range(0, std.length(panel.panels) - 1)
            ],
          } else {},
        ],
        next: done.next + count(panel),
      },
      placed, { panels: [], next: 1 }
    ).panels;
    {
      uid: uid(board),
      title: 'Traffic operator / ' + title,
      description: description,
      tags: ['traffic-operator'],
      editable: true,
      graphTooltip: 1,
      schemaVersion: 39,
      version: 1,
      refresh: '30s',
      time: { from: 'now-1h', to: 'now' },
      timezone: 'browser',
      links: [
        {
          title: other[1],
          type: 'link',
          icon: 'dashboard',
          tooltip: 'The dashboard ' + other[1],
          url: '/d/%s?%s' % [uid(other[0]), kept],
          asDropdown: false,
          includeVars: false,
          keepTime: true,
          targetBlank: false,
        }
        for other in boards
        if other[0] != board
      ],
      annotations: {
        list: [
          annotation {
            datasource: datasource,
            enable: true,
            expr: annotation.expr,
            target: { refId: 'Anno', datasource: datasource, expr: annotation.expr, range: true },
          }
          for annotation in annotations
        ],
      },
      templating: {
        list: [
          { name: 'datasource', label: 'Data source', type: 'datasource', query: 'prometheus', refresh: 1 },
          $.choice('cluster', 'Cluster', of, 'cluster', {
            description: 'Clusters, by the label cluster of the series. If the series have no such label, keep All.',
          }),
        ] + variables,
      },
      panels: numbered,
    },
}
