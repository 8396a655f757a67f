// Package deploy holds the files with which the bundled program is deployed: a
// Dockerfile, compose, Kubernetes manifests, a KEDA scaler, a unit of systemd.
// Its tests hold them against the program: the image's binary is built as the
// Dockerfile says and works in a root that holds nothing else, every variable
// and every probe exists, and what stops a worker waits longer than it may
// take to drain.
package deploy
