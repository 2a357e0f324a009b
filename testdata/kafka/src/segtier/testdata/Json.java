package segtier.testdata;

import java.util.List;

/** Just enough JSON: one object a line, keys in the given order. Keys with a null value are left out. */
final class Json {
    private Json() {}

    static String line(Object... kv) {
        StringBuilder b = new StringBuilder("{");
        for (int i = 0; i < kv.length; i += 2) {
            if (kv[i + 1] == null) {
                continue;
            }
            if (b.length() > 1) {
                b.append(',');
            }
            b.append('"').append(kv[i]).append("\":");
            value(b, kv[i + 1]);
        }
        return b.append('}').toString();
    }

    /** An object inside a line. */
    record Raw(String text) {}

    static Raw object(Object... kv) {
        return new Raw(line(kv));
    }

    private static void value(StringBuilder b, Object v) {
        if (v instanceof Number || v instanceof Boolean) {
            b.append(v);
        } else if (v instanceof Raw r) {
            b.append(r.text());
        } else if (v instanceof List<?> list) {
            b.append('[');
            for (int i = 0; i < list.size(); i++) {
                if (i > 0) {
                    b.append(',');
                }
                value(b, list.get(i));
            }
            b.append(']');
        } else {
            String s = v.toString();
            if (!s.matches("[ -~&&[^\"\\\\]]*")) {
                throw new IllegalArgumentException("needs escaping: " + s);
            }
            b.append('"').append(s).append('"');
        }
    }
}
