package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/lb/relay"
	"github.com/baton-lb/baton/lb/relay/capture"
	"github.com/baton-lb/baton/offload/bpf"
	"github.com/baton-lb/baton/offload/transparent"
)

func newCleanupCommand() *cobra.Command {
	stateDir := ""
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove every kernel object that an instance left behind",
		Long: `Remove what an instance of this network namespace left in the kernel (routes,
rules, sysctls, offloaded flows with their programs and maps) and in its state
directory. Flows that the kernel carries end. An instance that stops cleans up by
itself, but for flows that live on; this is for when none will be started again.`,
		Args: noArgs,
	}
	cmd.Flags().StringVar(&stateDir, "state-dir", defaultStateDir, "state directory of the instance")
	_ = cmd.MarkFlagDirname("state-dir")
	format := registerOutput(cmd, asTable, asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		// Holding the lock keeps an instance from starting meanwhile.
		lock, err := admin.AcquireLock(admin.Holder{StateDir: stateDir})
		if held := (*admin.HeldError)(nil); errors.As(err, &held) {
			return fmt.Errorf("%s runs in this network namespace: stop it first", held.Holder)
		}
		if err != nil {
			return err
		}
		did, err := cleanup(stateDir)
		return errors.Join(tellRemoved(cmd.OutOrStdout(), format.value, did, err == nil), err, lock.Close())
	}
	return cmd
}

// tellRemoved says each thing that was removed.
func tellRemoved(out io.Writer, format output, did []string, all bool) error {
	if format == asJSON {
		return writeJSON(out, map[string][]string{"removed": append([]string{}, did...)})
	}
	if len(did) == 0 && all {
		_, err := fmt.Fprintln(out, "nothing to remove")
		return err
	}
	for _, line := range did {
		if !strings.HasPrefix(line, "sysctl ") { // those say themselves what became of them
			line = "removed " + line
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

// cleanup removes what it can: first what carries packets.
func cleanup(stateDir string) (did []string, err error) {
	dir := ""
	if _, statErr := os.Stat(filepath.Join(stateDir, "bpf")); statErr == nil {
		dir, err = bpf.MountBPFFS(stateDir)
	}
	for _, remove := range []func() ([]string, error){
		func() ([]string, error) { return removeKernelPath(stateDir, dir) },
		transparent.Cleanup,
		func() ([]string, error) { return capture.Cleanup(stateDir) },
		func() ([]string, error) { return removeSockets(filepath.Join(stateDir, filepath.Base(defaultSocket))) },
		func() ([]string, error) { return removeFile(filepath.Join(stateDir, relay.SavedFile)) },
	} {
		removed, removeErr := remove()
		did, err = append(did, removed...), errors.Join(err, removeErr)
	}
	return did, err
}

// removeFile removes a file, if it is there.
func removeFile(path string) (did []string, err error) {
	err = os.Remove(path)
	switch {
	case err == nil:
		return []string{"file " + path}, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	}
	return nil, err
}

// removeSockets removes the socket of an instance that is gone, and those that
// upgrades have set aside.
func removeSockets(path string) (did []string, err error) {
	aside, err := filepath.Glob(path + ".*")
	for _, p := range append([]string{path}, aside...) {
		removed, removeErr := removeSocket(p)
		if err = errors.Join(err, removeErr); removed != "" {
			did = append(did, removed)
		}
	}
	return did, err
}

// removeSocket removes the socket of an instance that is gone. One that is
// served belongs to an instance in another network namespace.
func removeSocket(path string) (did string, err error) {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && fi.Mode().Type() != fs.ModeSocket {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look at the socket: %w", err)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
		return "", nil
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return "", fmt.Errorf("look whether %s is served: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return "", fmt.Errorf("remove the socket: %w", err)
	}
	return "socket " + path, nil
}
