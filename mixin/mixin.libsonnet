// The dashboards and alerts for installations that are built with jsonnet, kube-prometheus among them:
// grafanaDashboards and prometheusAlerts, as every monitoring mixin has them.
//
// runbookUrl is where you serve docs/runbooks; empty, alerts have no annotation runbook_url.
{
  _config+:: {
    trafficOperator+: {
      runbookUrl: '',
    },
  },

  grafanaDashboards+:: {
    'traffic-operator-networkprober.json': import '../grafana/networkprober.json',
    'traffic-operator-operator.json': import '../grafana/operator.json',
    'traffic-operator-overview.json': import '../grafana/overview.json',
    'traffic-operator-routereflector.json': import '../grafana/routereflector.json',
    'traffic-operator-swarm.json': import '../grafana/swarm.json',
    'traffic-operator-trafficwatch.json': import '../grafana/trafficwatch.json',
  },

  prometheusAlerts+:: {
    local url = $._config.trafficOperator.runbookUrl,
    local withRunbook(rule) = rule {
      annotations+: if url == '' then {}
      else { runbook_url: std.rstripChars(url, '/') + '/' + rule.alert + '.md' },
    },
    groups+: [
      group { rules: [withRunbook(rule) for rule in group.rules] }
      for group in std.parseYaml(importstr '../monitoring/prometheusrule.yaml').spec.groups
    ],
  },
}
