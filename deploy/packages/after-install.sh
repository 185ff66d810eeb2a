# What this machine allows, or where to look, as the last thing that an administrator reads. Whatever becomes of it, the package is
# installed: nothing here may fail.
after_install() {
    if [ ! -d /run/systemd/system ]; then
        # A system that is being put together: its kernel is another one, and nothing runs yet.
        echo "@PACKAGE@: systemd does not run here, so nothing is started yet"
        return
    fi
    case @PACKAGE@ in
    tailwater)
        address=$(timeout 10 tailwater check-config 2>/dev/null | sed -n 's/^http = "\(.*\)"$/\1/p')
        echo "tailwater: the page is http://${address:-127.0.0.1:4780}"
        ;;
    tailwater-agent)
        echo "tailwater-agent doctor says of this machine:"
        if said=$(timeout 20 tailwater-agent doctor 2>&1); then
            printf '%s\n' "$said" | awk '
                /^$/ { signals = 1; next }
                !signals { print "  " $0; next }
                /NOT COVERED$/ { print "  " $0; wanted = 1; next }
                /^  / && wanted && ($1 == "because" || $1 == "what") { print "  " $0; next }
                !/^  / { wanted = 0 }'
        else
            printf '%s\n' "$said" | tail -n 3
            echo "  it did not run here; run it when the machine is up: tailwater-agent doctor"
        fi
        ;;
    esac
}
