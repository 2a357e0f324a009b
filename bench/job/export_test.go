package job

// CPU returns the seconds of CPU that this process has used.
func CPU() float64 {
	user, system := cpu()
	return user + system
}
