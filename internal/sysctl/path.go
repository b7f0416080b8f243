package sysctl

import (
	"os"
	"path/filepath"
)

// Variable names the directory to use instead of /proc/sys.
const Variable = "BATON_PROC_SYS"

// Path is the file of a setting, whose name has slashes: "net/ipv4/ip_forward".
func Path(name string) string {
	root := os.Getenv(Variable)
	if root == "" {
		root = "/proc/sys"
	}
	return filepath.Join(root, name)
}
