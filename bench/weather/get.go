package weather

const writeSize = 256 << 10
