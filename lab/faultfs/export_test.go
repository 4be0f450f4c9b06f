package faultfs

// Kill the process that serves.
func (f *FS) Kill() error {
	err := f.cmd.Process.Kill()
	_ = f.cmd.Wait()
	return err
}
