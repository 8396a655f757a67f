package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// documents reads a file of YAML documents.
func documents(t *testing.T, name string) (all []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var one map[string]any
		err := decoder.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err, name)
		all = append(all, one)
	}
}

// at walks into a document: keys of maps, numbers of lists.
func at(t *testing.T, value any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, ok := value.(map[string]any)
			require.True(t, ok, "%v: %v", path, step)
			require.Contains(t, m, step, "%v", path)
			value = m[step]
		case int:
			list, ok := value.([]any)
			require.True(t, ok, "%v: %v", path, step)
			require.Greater(t, len(list), step, "%v", path)
			value = list[step]
		}
	}
	return value
}

// defaults are the program's variables with the values in force without any.
func defaults(t *testing.T) map[string]string {
	t.Helper()
	output, err := newImage(t, nil).command("config", "--json").Output()
	require.NoError(t, err)
	var shown struct {
		Variables []struct{ Name, Value string }
	}
	require.NoError(t, json.Unmarshal(output, &shown))
	values := map[string]string{}
	for _, v := range shown.Variables {
		values[v.Name] = v.Value
	}
	return values
}

// stopping is how long a worker may take to stop: what the environment says,
// else the defaults, and ten seconds to settle and to close.
func stopping(t *testing.T, env map[string]string) time.Duration {
	t.Helper()
	all := defaults(t)
	sum := 10 * time.Second
	for _, name := range []string{"DURABLE_DRAIN_TIMEOUT", "DURABLE_CANCEL_GRACE"} {
		text := all[name]
		if given, ok := env[name]; ok {
			text = given
		}
		d, err := time.ParseDuration(text)
		require.NoError(t, err, name)
		sum += d
	}
	return sum
}

func files(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, pattern := range []string{"Dockerfile", "*.yaml", "*.service", "kubernetes/*.yaml"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		names = append(names, found...)
	}
	require.Len(t, names, 9)
	return names
}

func TestEveryVariableExists(t *testing.T) {
	t.Parallel()
	known := defaults(t)
	for _, name := range files(t) {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, variable := range regexp.MustCompile(`DURABLE_[A-Z_]+`).FindAllString(string(text), -1) {
			if variable != "DURABLE_" {
				require.Contains(t, known, variable, name)
			}
		}
	}
}

func TestTheDockerfile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("Dockerfile")
	require.NoError(t, err)
	module, err := os.ReadFile("../go.mod")
	require.NoError(t, err)
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(module)[1]
	require.Contains(t, string(text), "ARG GO_VERSION="+string(version)+"\n")
	_, last, _ := strings.Cut(string(text), "\nFROM scratch\n")
	for _, line := range []string{"USER 65532:65532", "STOPSIGNAL SIGTERM", "VOLUME /data", `CMD ["/durable-worker", "healthcheck"]`, `ENTRYPOINT ["/durable-worker"]`,
		"--chown=65532:65532 --chmod=0700 /out/data /data", "DURABLE_HTTP_ADDR=0.0.0.0:8080", "DURABLE_DATABASE_URL=sqlite:/data/durable.db"} {
		require.Contains(t, last, line)
	}
	require.NotContains(t, last, "RUN", "there is no shell")
}

func TestComposeWaitsForTheDrain(t *testing.T) {
	t.Parallel()
	worker := at(t, documents(t, "compose.yaml")[0], "services", "worker")
	env := map[string]string{}
	for name, value := range at(t, worker, "environment").(map[string]any) {
		env[name], _ = value.(string)
	}
	grace, err := time.ParseDuration(at(t, worker, "stop_grace_period").(string))
	require.NoError(t, err)
	require.GreaterOrEqual(t, grace, stopping(t, env))
	require.Equal(t, 3, at(t, worker, "deploy", "replicas"))
	require.Equal(t, "service_healthy", at(t, worker, "depends_on", "postgres", "condition"))
	require.Equal(t, []any{"CMD", "/durable-worker", "healthcheck", "--ready"}, at(t, worker, "healthcheck", "test"))
	_, err = os.Stat(filepath.Join("..", at(t, worker, "build", "dockerfile").(string)))
	require.NoError(t, err)
}

// TestNoSecretIsWritten: a password is asked for, and not part of a URL.
func TestNoSecretIsWritten(t *testing.T) {
	t.Parallel()
	compose := documents(t, "compose.yaml")[0]
	password := at(t, compose, "services", "postgres", "environment", "POSTGRES_PASSWORD").(string)
	require.Contains(t, password, ":?", "there is no default that could be copied")
	env := at(t, compose, "services", "worker", "environment")
	require.Equal(t, password, at(t, env, "PGPASSWORD"))
	require.NotContains(t, at(t, env, "DURABLE_DATABASE_URL"), "PASSWORD")
	for _, name := range files(t) {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NotRegexp(t, `postgres://[^:@ ]+:[^$@ ]*\$\{[^@]*@`, string(text), "%s: a password in a URL is to be escaped", name)
	}
}

// TestAProgramThatForksTakesNoMachine: exec starts programs of others.
func TestAProgramThatForksTakesNoMachine(t *testing.T) {
	t.Parallel()
	worker := at(t, documents(t, "compose.yaml")[0], "services", "worker")
	require.Positive(t, at(t, worker, "pids_limit"))
	require.NotEmpty(t, at(t, worker, "mem_limit"))
	unit, err := os.ReadFile("durable-worker.service")
	require.NoError(t, err)
	for _, line := range []string{"TasksMax=", "MemoryMax=", "OOMPolicy=continue", "Environment=GOMEMLIMIT="} {
		require.Contains(t, string(unit), "\n"+line)
	}
}

// TestMigrationAndWorkersAreOneProgram: one place says which image, and no tag
// floats.
func TestMigrationAndWorkersAreOneProgram(t *testing.T) {
	t.Parallel()
	images := at(t, documents(t, "kubernetes/kustomization.yaml")[0], "images").([]any)
	require.Len(t, images, 1)
	name := at(t, images[0], "name")
	require.NotEqual(t, "latest", at(t, images[0], "newTag"))
	deployment := at(t, documents(t, "kubernetes/deployment.yaml")[0], "spec", "template", "spec")
	job := at(t, documents(t, "kubernetes/migrate.yaml")[0], "spec", "template", "spec")
	for _, container := range []any{at(t, deployment, "containers", 0), at(t, deployment, "initContainers", 0), at(t, job, "containers", 0)} {
		require.Equal(t, name, at(t, container, "image"))
	}
}

// TestNothingReachesTheHealthPort, and workers do not reach where a cloud hands
// out credentials.
func TestNothingReachesTheHealthPort(t *testing.T) {
	t.Parallel()
	policy := at(t, documents(t, "kubernetes/network.yaml")[0], "spec")
	require.Contains(t, at(t, documents(t, "kubernetes/kustomization.yaml")[0], "resources"), "network.yaml")
	require.Equal(t, []any{"Ingress", "Egress"}, at(t, policy, "policyTypes"))
	require.Empty(t, at(t, policy, "ingress"))
	selected := at(t, policy, "podSelector", "matchLabels").(map[string]any)
	for _, file := range []string{"kubernetes/deployment.yaml", "kubernetes/migrate.yaml"} {
		labels := at(t, documents(t, file)[0], "spec", "template", "metadata", "labels").(map[string]any)
		for name, value := range selected {
			require.Equal(t, value, labels[name], file)
		}
	}
	for _, rule := range at(t, policy, "egress").([]any) {
		for _, to := range at(t, rule, "to").([]any) {
			block, ok := to.(map[string]any)["ipBlock"].(map[string]any)
			if ok && block["cidr"] == "0.0.0.0/0" {
				require.Contains(t, block["except"], "169.254.0.0/16")
			} else if ok {
				require.Contains(t, block["except"], "fd00:ec2::/32")
			}
		}
	}
}

func TestKubernetesWaitsForTheDrain(t *testing.T) {
	t.Parallel()
	deployment := documents(t, "kubernetes/deployment.yaml")[0]
	pod := at(t, deployment, "spec", "template", "spec")
	container := at(t, pod, "containers", 0)
	env := map[string]string{}
	for _, one := range at(t, container, "env").([]any) {
		value, _ := one.(map[string]any)["value"].(string)
		env[at(t, one, "name").(string)] = value
	}
	grace, err := time.ParseDuration(fmt.Sprint(at(t, pod, "terminationGracePeriodSeconds"), "s"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, grace, stopping(t, env))
	require.NotContains(t, container, "lifecycle", "SIGTERM is what begins the drain")
	require.Equal(t, "/healthz", at(t, container, "livenessProbe", "httpGet", "path"))
	require.Equal(t, "/readyz", at(t, container, "readinessProbe", "httpGet", "path"))
	require.Equal(t, 8080, at(t, container, "ports", 0, "containerPort"), "that of the image")
	require.Equal(t, at(t, deployment, "spec", "selector"), map[string]any{"matchLabels": at(t, deployment, "spec", "template", "metadata", "labels")})
	require.Equal(t, at(t, deployment, "spec", "selector"), at(t, documents(t, "kubernetes/disruption.yaml")[0], "spec", "selector"))
	job := documents(t, "kubernetes/migrate.yaml")[0]
	for _, pod := range []any{pod, at(t, job, "spec", "template", "spec")} {
		require.Equal(t, true, at(t, pod, "securityContext", "runAsNonRoot"))
		require.Equal(t, unprivileged, at(t, pod, "securityContext", "runAsUser"))
		require.Equal(t, true, at(t, pod, "containers", 0, "securityContext", "readOnlyRootFilesystem"))
		require.Equal(t, []any{"ALL"}, at(t, pod, "containers", 0, "securityContext", "capabilities", "drop"))
		require.Contains(t, at(t, pod, "containers", 0, "env", 0), "valueFrom", "the address holds a password")
	}
	require.NotEqual(t, at(t, job, "spec", "template", "metadata", "labels"), at(t, deployment, "spec", "template", "metadata", "labels"))
	require.NoError(t, onlyFiles(t, at(t, documents(t, "kubernetes/kustomization.yaml")[0], "resources")))
	secret := []any{"env", 0, "valueFrom", "secretKeyRef", "name"}
	require.Equal(t, "durable-worker-migrate", at(t, at(t, job, "spec", "template", "spec", "containers", 0), secret...))
	require.Equal(t, "durable-worker", at(t, container, secret...))
	require.Equal(t, "durable-worker-scaler", at(t, documents(t, "kubernetes/keda.yaml")[0], "spec", "secretTargetRef", 0, "name"), "a scaler must not be able to enqueue")
	scaled := documents(t, "kubernetes/keda.yaml")[1]
	require.Equal(t, at(t, deployment, "metadata", "name"), at(t, scaled, "spec", "scaleTargetRef", "name"))
}

func onlyFiles(t *testing.T, list any) error {
	t.Helper()
	for _, name := range list.([]any) {
		if _, err := os.Stat(filepath.Join("kubernetes", name.(string))); err != nil {
			return err
		}
	}
	return nil
}

func TestTheUnitWaitsForTheDrain(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("durable-worker.service")
	require.NoError(t, err)
	settings, env := map[string]string{}, map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, found := strings.Cut(strings.TrimSpace(line), "=")
		if !found || strings.HasPrefix(name, "#") {
			continue
		}
		settings[name] = value
		if name == "Environment" {
			name, value, _ = strings.Cut(value, "=")
			env[name] = value
		}
	}
	grace, err := time.ParseDuration(settings["TimeoutStopSec"])
	require.NoError(t, err)
	require.GreaterOrEqual(t, grace, stopping(t, env))
	require.Equal(t, "SIGTERM", settings["KillSignal"])
	require.Equal(t, "mixed", settings["KillMode"], "programs of the job exec are the worker's to end")
	require.Equal(t, "2", settings["RestartPreventExitStatus"])

	verifier, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return // the machine has none; the rest has been checked
	}
	program, err := built()
	require.NoError(t, err)
	dir := t.TempDir()
	path := filepath.Join(dir, "durable-worker")
	require.NoError(t, os.WriteFile(path, program, 0o755)) //nolint:gosec // a program
	unit := filepath.Join(dir, "durable-worker.service")
	require.NoError(t, os.WriteFile(unit, bytes.ReplaceAll(text, []byte("/usr/local/bin/durable-worker"), []byte(path)), 0o600))
	output, err := exec.Command(verifier, "verify", unit).CombinedOutput()
	require.NoError(t, err, string(output))
	lines := slices.DeleteFunc(strings.Split(string(output), "\n"), func(line string) bool { return !strings.Contains(line, dir) })
	require.Empty(t, lines)
}
