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
	"github.com/baton-lb/baton/lb/relay/capture"
)

func newCleanupCommand() *cobra.Command {
	stateDir := ""
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove every kernel object that an instance left behind",
		Long: `Remove what an instance of this network namespace left in the kernel (routes,
sysctls) and in its state directory. An instance that stops cleans up by itself;
this is for one that was killed and will not be started again.`,
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

// cleanup removes what it can.
func cleanup(stateDir string) (did []string, err error) {
	did, err = capture.Cleanup(stateDir)
	if removed, fileErr := removeSocket(filepath.Join(stateDir, filepath.Base(defaultSocket))); fileErr != nil {
		err = errors.Join(err, fileErr)
	} else if removed != "" {
		did = append(did, removed)
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
