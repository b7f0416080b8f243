// Package deploy holds no code: files by which others start and watch Baton, and the
// tests that hold these files to what they talk about (flags, settings, capabilities,
// metrics, Kubernetes' own types).
package deploy
