package capture

// Cleanup removes every route of ours in the calling thread's namespace, whoever of us made it, and restores the sysctls
// that stateDir tells of. It says what it did, a line each. No Routes must be open beside it.
func Cleanup(stateDir string) (did []string, err error) {
	r, err := OpenRoutes(RoutesParams{StateDir: stateDir})
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Detach() }()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clear()
}
