package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/baton-lb/baton/internal/testnet"
)

// kubeFlags are the options that a command line gives.
func kubeFlags(t *testing.T, args ...string) (*kubeOptions, string) {
	t.Helper()
	var k kubeOptions
	config := ""
	f := pflag.NewFlagSet("run", pflag.ContinueOnError)
	f.StringVar(&config, "config", "", "")
	k.register(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := k.check(config); err != nil {
		t.Fatal(err)
	}
	return &k, config
}

// A flag wins over the file, and the file over what kube-proxy does.
func TestKubeSettings(t *testing.T) {
	t.Setenv(nodeNameVariable, "")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.conf")
	text := `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: /file/kubeconfig}
hostnameOverride: Node-F
healthzBindAddress: 127.0.0.1:2
metricsBindAddress: 127.0.0.1:1
nodePortAddresses: [10.0.0.0/8]
clusterCIDR: 10.244.0.0/16
conntrack: {tcpCloseWaitTimeout: 5m}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	type want struct {
		node, kubeconfig, metrics, health string
		nodePorts, cidrs                  int
		closeWait                         time.Duration
	}
	for _, tc := range []struct {
		name, env string
		args      []string
		want      want
	}{
		{"defaults", "", []string{"--kubernetes"},
			want{strings.ToLower(host), "", "127.0.0.1:10249", "0.0.0.0:10256", 0, 0, time.Hour}},
		{"environment", "node-e", []string{"--kubernetes"},
			want{"node-e", "", "127.0.0.1:10249", "0.0.0.0:10256", 0, 0, time.Hour}},
		{"file", "", []string{"--kubernetes", "--config", file},
			want{"node-f", "/file/kubeconfig", "127.0.0.1:1", "127.0.0.1:2", 1, 1, 5 * time.Minute}},
		{"flags over the file", "", []string{
			"--kubernetes", "--config", file, "--node", "n", "--kubeconfig", "/k", "--metrics-bind-address", "", "--healthz-bind-address", "127.0.0.1:4",
			"--nodeport-addresses", "localhost,192.0.2.0/24", "--cluster-cidr", "10.0.0.0/8,fd00::/8",
		}, want{"n", "/k", "", "127.0.0.1:4", 3, 2, 5 * time.Minute}},
		{"objects", "", []string{"--kube-objects", "dump.yaml"},
			want{"", "", "127.0.0.1:10249", "", 0, 0, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv(nodeNameVariable, tc.env)
			k, config := kubeFlags(t, tc.args...)
			s, c, err := k.settings(config)
			if err != nil {
				t.Fatal(err)
			}
			got := want{s.node, s.client.Kubeconfig, c.Admin.HTTP, s.health, len(s.nodePorts.Prefixes), len(s.clusterCIDRs), s.closeWait}
			if got != tc.want {
				t.Errorf("got %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

// The settings of a host are written where they are, and only there.
func TestWriteSetting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "setting")
	if err := writeSetting(path, "3600"); err != nil {
		t.Errorf("a setting that the kernel does not have: %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("it was made")
	}
	for _, before := range []string{"60\n", "3600\n"} {
		if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := writeSetting(path, "3600"); err != nil {
			t.Error(err)
		}
		if now, _ := os.ReadFile(path); strings.TrimSpace(string(now)) != "3600" {
			t.Errorf("%q became %q", before, now)
		}
	}
}

// A dump is checked object by object.
func TestCheckObjects(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.yaml")
	text := `kind: Service
apiVersion: v1
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}
`
	if err := os.WriteFile(good, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	if code := execute([]string{"check", "--kube-objects", good}, &out, &errs); code != exitFine || !strings.Contains(out.String(), "is fine: 1 service, 1 frontend, 0 backends") {
		t.Errorf("exit code %d: %s%s", code, &out, &errs)
	}
	for name, text := range map[string]string{"bad.yaml": strings.NewReplacer("web", "bad", "10.96.0.10", "10.96.0.999").Replace(text), "broken.yaml": "kind: ["} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out.Reset()
	code := execute([]string{"check", "--kube-objects", dir}, &out, &errs)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if code != exitNotFine || len(lines) != 2 ||
		!strings.HasPrefix(lines[0], filepath.Join(dir, "bad.yaml")+": Service shop/bad: spec.clusterIP") ||
		!strings.HasPrefix(lines[1], filepath.Join(dir, "broken.yaml")+": document 1: not YAML") {
		t.Errorf("exit code %d:\n%s", code, &out)
	}
}

// A file of kube-proxy's is read as run reads it.
func TestCheckProxyConfig(t *testing.T) {
	testnet.RequireRoot(t)
	h := testnet.New(t).Host("a")
	const head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
	good := writeFile(t, head+"clusterCIDR: 10.244.0.0/16\n")
	bad := writeFile(t, head+"clusterCIDR: 10.244.0.0\nfeatureGates: {A: true}\n")
	for _, tt := range []struct {
		args   string
		code   int
		stdout []string
		stderr string
	}{
		{"check --kubernetes --config " + good, exitFine, []string{good + " is fine\n"}, ""},
		{"check --kubernetes --config " + bad, exitNotFine, []string{bad + ":3: clusterCIDR: ", bad + ":4: featureGates: "}, ""},
		{"check -o json --kubernetes --config " + bad, exitNotFine, []string{`"fine":false`, `"line":3`}, ""},
		{"check --kubernetes --config " + good + ".not", exitNotFine, nil, "no such file"},
		{"check --kubernetes --kube-objects " + good, exitUsage, nil, "--kubernetes is about the file of --config"},
		{"doctor --kubernetes --config " + good, exitFine, []string{"kernel "}, ""},
		{"doctor --kubernetes --config " + bad, exitNotFine, nil, bad + ":3: clusterCIDR: "},
	} {
		var code int
		var out, errs string
		h.Do(func() { code, out, errs = command(strings.Fields(tt.args)...) })
		if code != tt.code || !strings.Contains(errs, tt.stderr) {
			t.Errorf("%s: exit code %d, %q", tt.args, code, errs)
		}
		for _, want := range tt.stdout {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", tt.args, want, out)
			}
		}
	}
}
